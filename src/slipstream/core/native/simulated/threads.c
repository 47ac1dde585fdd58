/* Runs kernels: blocks one after the other, the threads of a block on user-level stacks.

   A thread that reaches no barrier runs on the stack of the thread before it, without a switch;
   one that waits leaves its stack, and others go on in an order that a seed decides.

   The blocks of a cluster run together, as one block with all their threads: only what a thread
   sees of itself, its shared memory and its block's barrier tell them apart. */
#include "abi.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__) && !defined(SLIP_PORTABLE)
#define OWN_SWAP 1
#else
#include <ucontext.h>
#endif

#define STACK_SIZE ((size_t)256 << 10)
#define GUARD_SIZE ((size_t)16 << 10)
#define MAX_FIBERS 1025
#define MAX_FAULTS 32

#define API __attribute__((visibility("default")))
typedef unsigned long long u64;

typedef struct slip_fault {
    int kind, access;
    slip_triple thread, block;
    u64 address, start, size, identity;
    unsigned nbytes, other;
    char text[120];
} slip_fault;

typedef struct fiber {
#if defined(OWN_SWAP)
    void *stack_pointer;
#else
    ucontext_t state;
#endif
    char *stack;
    slip_triple thread;
    unsigned linear;
    int running;          /* a thread is on this stack */
    int waits;            /* at a barrier: 1 of the block, 2 of the cluster */
    unsigned rank;        /* of its block in the cluster */
    /* What the thread brings to an operation of its warp, and takes from it. */
    int lane_waits, what, source;
    unsigned mask;
    u64 value, result;
} fiber;

typedef struct launch {
    slip_context context; /* first: the context is the launch */
    const slip_kernel *kernel;
    const slip_image *image;
    fiber *fibers[MAX_FIBERS];
    fiber *idle[MAX_FIBERS], *ready[MAX_FIBERS];
    fiber *lanes[MAX_FIBERS]; /* the fiber of each thread of the block, by its linear number */
    int made, idle_count, ready_count;
    fiber *current;
    unsigned threads, started, live; /* of the blocks that run: one, or a cluster */
    unsigned cluster, block_threads, meeting;
    struct { unsigned started, live, waiting, votes; } ranks[SLIP_CLUSTER];
    slip_triple first_block;
    unsigned warps, warp, warp_started, width, lane, lane_first; /* who starts next */
    unsigned lanes_waiting; /* threads in operations of their warp */
    slip_triple places[MAX_FIBERS], placed_for;
    u64 blocks, block_number, block_first, block_step;
    u64 random;
    int abandoned, poison;
#if defined(OWN_SWAP)
    void *host;
#else
    ucontext_t host;
#endif
} launch;

static launch machine;
static slip_fault faults[MAX_FAULTS];
static unsigned fault_count;

/* -- faults -- */

static slip_fault *new_fault(int kind) {
    slip_fault *fault = &faults[fault_count < MAX_FAULTS ? fault_count : MAX_FAULTS - 1];
    fault_count++;
    memset(fault, 0, sizeof *fault);
    fault->kind = kind;
    fault->thread = machine.context.thread;
    fault->block = machine.context.block;
    return fault;
}

API unsigned slip_take_faults(slip_fault *target, unsigned limit) {
    unsigned count = fault_count, kept = count < MAX_FAULTS ? count : MAX_FAULTS;
    memcpy(target, faults, (kept < limit ? kept : limit) * sizeof(slip_fault));
    fault_count = 0;
    return count;
}

/* -- switches between stacks -- */

static void fiber_main(void);

#if defined(OWN_SWAP)
/* Keeps the registers that a call must keep; mxcsr and the x87 word are the same for all. */
void slip_swap(void **save, void *load);
__asm__(
    ".text\n.globl slip_swap\n.hidden slip_swap\n"
#if defined(__ELF__)
    ".type slip_swap,@function\n"
#endif
    "slip_swap:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static void prepare(fiber *f) {
    void **top = (void **)(f->stack + STACK_SIZE);
    *--top = 0;                  /* the return address of fiber_main, which never returns */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = 0;
    f->stack_pointer = top;
}
static void enter(fiber *f) { slip_swap(&machine.host, f->stack_pointer); }
static void leave(fiber *f) { slip_swap(&f->stack_pointer, machine.host); }
#else
static void prepare(fiber *f) {
    getcontext(&f->state);
    f->state.uc_stack.ss_sp = f->stack;
    f->state.uc_stack.ss_size = STACK_SIZE;
    f->state.uc_link = 0;
    makecontext(&f->state, fiber_main, 0);
}
static void enter(fiber *f) { swapcontext(&machine.host, &f->state); }
static void leave(fiber *f) { swapcontext(&f->state, &machine.host); }
#endif

static unsigned draw(unsigned below) {
    machine.random ^= machine.random << 13;
    machine.random ^= machine.random >> 7;
    machine.random ^= machine.random << 17;
    return (unsigned)((machine.random >> 32) * below >> 32);
}

static fiber *take_fiber(void) {
    fiber *f;
    if (machine.idle_count) {
        f = machine.idle[--machine.idle_count];
    } else {
        f = (fiber *)calloc(1, sizeof *f);
        char *memory = (char *)mmap(0, STACK_SIZE + GUARD_SIZE, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(memory, GUARD_SIZE, PROT_NONE);
        f->stack = memory + GUARD_SIZE;
        machine.fibers[machine.made++] = f;
    }
    f->running = f->waits = f->lane_waits = 0;
    prepare(f);
    return f;
}

static void fiber_main(void) {
    machine.kernel->run(&machine.context);
    fiber *f = machine.current;
    machine.idle[machine.idle_count++] = f;
    leave(f);
}

/* -- blocks and threads -- */

static unsigned common(u64 a, u64 b) {
    while (b) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    return (unsigned)a;
}

static u64 a_step(u64 count) {
    u64 step = count > 1 ? 1 + draw(count < 0xffffffffu ? (unsigned)count - 1 : 0xfffffffeu) : 1;
    while (common(step, count) != 1) step = step % count + 1;
    return step;
}

static void begin_warp(unsigned warp);

static void begin_block(void) {
    slip_context *c = &machine.context;
    u64 number = (machine.block_first + machine.block_number * machine.block_step)
        % machine.blocks;
    unsigned wide = c->grid_dim.x / machine.cluster;
    machine.first_block.x = (unsigned)(number % wide) * machine.cluster;
    machine.first_block.y = (unsigned)(number / wide % c->grid_dim.y);
    machine.first_block.z = (unsigned)(number / wide / c->grid_dim.y);
    machine.block_number++;
    machine.started = machine.live = machine.meeting = machine.lanes_waiting = 0;
    memset(machine.ranks, 0, sizeof machine.ranks);
    machine.lane_first = draw(SLIP_WARP);
    begin_warp(draw(machine.warps));
    memset(machine.lanes, 0, machine.threads * sizeof *machine.lanes);
    if (machine.poison) {
        const slip_image *image = machine.image;
        if (image->shared_end > image->shared_start)
            memset(image->shared_start, 0xff, (size_t)(image->shared_end - image->shared_start));
        if (c->shared_size)
            memset(image->dynamic_shared, 0xff, (size_t)c->shared_size * machine.cluster);
    }
}

/* The next warp from which threads start; the last one of a block may be narrower. */
static void begin_warp(unsigned warp) {
    unsigned left = machine.threads - warp * SLIP_WARP;
    machine.warp = warp;
    machine.warp_started = 0;
    machine.width = left < SLIP_WARP ? left : SLIP_WARP;
    machine.lane = machine.lane_first % machine.width;
}

/* Threads start warp after warp from a drawn one, and within a warp from a drawn lane. */
static unsigned next_to_start(void) {
    if (machine.warp_started == machine.width) {
        unsigned next = machine.warp + 1;
        begin_warp(next == machine.warps ? 0 : next);
    }
    unsigned linear = machine.warp * SLIP_WARP + machine.lane;
    machine.warp_started++;
    if (++machine.lane == machine.width) machine.lane = 0;
    machine.started++;
    return linear;
}

/* Where each thread of a block of this shape lies. */
static void place_threads(slip_triple dim) {
    slip_triple *last = &machine.placed_for, *at = machine.places;
    if (last->x == dim.x && last->y == dim.y && last->z == dim.z) return;
    *last = dim;
    for (unsigned z = 0; z < dim.z; z++)
        for (unsigned y = 0; y < dim.y; y++)
            for (unsigned x = 0; x < dim.x; x++) *at++ = (slip_triple){x, y, z};
}

/* What a thread sees of itself. */
static void show(const fiber *f) {
    slip_context *c = &machine.context;
    c->thread = f->thread;
    c->block = machine.first_block;
    c->block.x += f->rank;
    c->rank = f->rank;
    c->shared.start = (char *)machine.image->dynamic_shared + (size_t)f->rank * c->shared_size;
}

static void start_thread(fiber *f) {
    unsigned linear = next_to_start();
    f->linear = linear;
    f->running = 1;
    f->rank = linear / machine.block_threads;
    f->thread = machine.places[linear % machine.block_threads];
    show(f);
    machine.lanes[linear] = f;
    machine.live++;
    machine.ranks[f->rank].started++;
    machine.ranks[f->rank].live++;
}

/* Stands where a thread has ended. */
static fiber ended;
#define gone (&ended)

static int not_started(unsigned linear) { return machine.lanes[linear] == 0; }

static void make_ready(fiber *f) { machine.ready[machine.ready_count++] = f; }

/* Those of `count` threads go on that wait at one kind of barrier. */
static void release(unsigned first, unsigned count, int kind, unsigned votes) {
    for (unsigned i = first; i < first + count; i++) {
        fiber *f = machine.lanes[i];
        if (!f || f == gone || f->waits != kind) continue;
        f->waits = 0;
        f->result = votes;
        make_ready(f);
    }
}

/* Once all threads of a block that are alive have come to its barrier. */
static void try_block(unsigned rank) {
    unsigned all = machine.block_threads, votes = machine.ranks[rank].votes;
    if (machine.ranks[rank].started < all || !machine.ranks[rank].live
        || machine.ranks[rank].waiting < machine.ranks[rank].live)
        return;
    machine.ranks[rank].waiting = machine.ranks[rank].votes = 0;
    release(rank * all, all, 1, votes);
}

/* The same of a cluster's. */
static void try_cluster(void) {
    if (machine.started < machine.threads || !machine.live || machine.meeting < machine.live)
        return;
    machine.meeting = 0;
    release(0, machine.threads, 2, 0);
}

/* -- operations of a warp -- */

static u64 folded(int what, u64 a, u64 b) {
    unsigned x = (unsigned)a, y = (unsigned)b;
    switch (what) {
    case SLIP_ADD: return x + y;
    case SLIP_MIN: return x < y ? x : y;
    case SLIP_MAX: return x > y ? x : y;
    case SLIP_SIGNED_MIN: return (int)x < (int)y ? x : y;
    case SLIP_SIGNED_MAX: return (int)x > (int)y ? x : y;
    case SLIP_AND: return x & y;
    case SLIP_OR: return x | y;
    default: return x ^ y;
    }
}

static u64 lane_result(fiber **warp, unsigned there, unsigned lane) {
    fiber *mine = warp[lane];
    u64 result = 0;
    int first = 1;
    if (mine->what == SLIP_SHUFFLE) {
        unsigned source = (unsigned)mine->source & (SLIP_WARP - 1);
        return there >> source & 1 ? warp[source]->value : ~0ull; /* no such lane: poison */
    }
    for (unsigned i = 0; i < SLIP_WARP; i++) {
        if (!(there >> i & 1)) continue;
        u64 value = warp[i]->value;
        if (mine->what == SLIP_BALLOT) result |= (u64)(value != 0) << i;
        else if (mine->what == SLIP_MATCH) result |= (u64)(value == mine->value) << i;
        else result = first ? value : folded(mine->what, result, value);
        first = 0;
    }
    return result;
}

/* Go on with the lanes of `mask` in a warp once all that are alive have come. */
static void try_warp(unsigned warp_number, unsigned mask) {
    fiber **warp = machine.lanes + warp_number * SLIP_WARP;
    unsigned there = 0, first = warp_number * SLIP_WARP;
    for (unsigned i = 0; i < SLIP_WARP; i++) {
        if (!(mask >> i & 1) || first + i >= machine.threads) continue;
        if (not_started(first + i)) return;
        if (warp[i] == gone) continue;
        if (!warp[i]->lane_waits || warp[i]->mask != mask) return;
        there |= 1u << i;
    }
    for (unsigned i = 0; i < SLIP_WARP; i++)
        if (there >> i & 1) warp[i]->result = lane_result(warp, there, i);
    for (unsigned i = 0; i < SLIP_WARP; i++) {
        if (!(there >> i & 1)) continue;
        warp[i]->lane_waits = 0;
        machine.lanes_waiting--;
        make_ready(warp[i]);
    }
}

static void end_thread(fiber *f) {
    unsigned warp_number = f->linear / SLIP_WARP, first = warp_number * SLIP_WARP;
    f->running = 0;
    machine.live--;
    machine.ranks[f->rank].live--;
    machine.lanes[f->linear] = gone;
    try_block(f->rank);
    try_cluster();
    if (!machine.lanes_waiting) return;
    for (unsigned i = 0; i < SLIP_WARP && first + i < machine.threads; i++) {
        fiber *other = machine.lanes[first + i];
        if (other && other != gone && other->lane_waits) try_warp(warp_number, other->mask);
    }
}

/* -- what kernels call -- */

/* Ends a stack's thread and gives it the next one; 0 where others have to run first. */
static int next_thread(slip_context *c) {
    fiber *f = machine.current;
    (void)c;
    if (f->running) end_thread(f);
    if (machine.started < machine.threads) {
        if (machine.ready_count && draw(2)) return 0;
        start_thread(f);
        return 1;
    }
    if (machine.live || machine.block_number == machine.blocks) return 0;
    begin_block();
    start_thread(f);
    return 1;
}

static void wait_here(fiber *f) {
    leave(f);
    show(f);
}

static int at_barrier(slip_context *c, int predicate) {
    fiber *f = machine.current;
    (void)c;
    f->waits = 1;
    machine.ranks[f->rank].votes += predicate != 0;
    machine.ranks[f->rank].waiting++;
    try_block(f->rank);
    wait_here(f);
    return (int)f->result;
}

static void at_meeting(slip_context *c) {
    fiber *f = machine.current;
    (void)c;
    f->waits = 2;
    machine.meeting++;
    try_cluster();
    wait_here(f);
}

static u64 together(slip_context *c, unsigned mask, int what, u64 value, int source) {
    fiber *f = machine.current;
    (void)c;
    f->mask = mask | 1u << f->linear % SLIP_WARP;
    f->what = what;
    f->value = value;
    f->source = source;
    f->lane_waits = 1;
    machine.lanes_waiting++;
    try_warp(f->linear / SLIP_WARP, f->mask);
    wait_here(f);
    return f->result;
}

static void trap(slip_context *c, const char *text) {
    slip_fault *fault = new_fault(SLIP_TRAP);
    (void)c;
    strncpy(fault->text, text, sizeof fault->text - 1);
    machine.abandoned = 1;
    leave(machine.current); /* and never comes back */
}

static void bad_index(slip_context *c, const char *file, unsigned line, const char *type,
                      long long index) {
    char text[sizeof(((slip_fault *)0)->text)];
    snprintf(text, sizeof text, "index %lld of %s at %s:%u", index, type, file, line);
    trap(c, text);
}

/* -- a launch -- */

static void resume(fiber *f) {
    machine.current = f;
    show(f);
    enter(f);
}

static void run_blocks(void) {
    while (!machine.abandoned) {
        unsigned more = machine.started < machine.threads
            || (!machine.live && machine.block_number < machine.blocks);
        if (machine.ready_count && (!more || draw(2))) {
            unsigned n = draw((unsigned)machine.ready_count);
            fiber *f = machine.ready[n];
            machine.ready[n] = machine.ready[--machine.ready_count];
            resume(f);
        } else if (more) {
            resume(take_fiber());
        } else if (machine.live) {
            new_fault(SLIP_DEADLOCK);
            machine.abandoned = 1;
        } else {
            break;
        }
    }
}

/* -- when the host's processor refuses what a kernel does -- */

#define SIGNALS 3
static const int signals[SIGNALS] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction before[SIGNALS];
static sigjmp_buf escape;
static pthread_t runner;
static volatile sig_atomic_t running;
static char signal_stack[64 << 10];

/* Ends the launch; a signal that comes from elsewhere goes where it went before. */
static void on_signal(int number, siginfo_t *info, void *state) {
    (void)state;
    if (running && pthread_equal(pthread_self(), runner)) {
        slip_fault *fault = new_fault(SLIP_CRASH);
        fault->address = number == SIGFPE ? 0 : (u64)info->si_addr;
        fault->nbytes = (unsigned)number;
        strcpy(fault->text, number == SIGFPE ? "divides an integer by zero"
                                             : "touches memory that is not there");
        siglongjmp(escape, 1);
    }
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == number) sigaction(number, &before[i], 0);
}

static void need_signal_stack(void) {
    stack_t held;
    if (sigaltstack(0, &held) || !(held.ss_flags & SS_DISABLE)) return;
    memset(&held, 0, sizeof held);
    held.ss_sp = signal_stack;
    held.ss_size = sizeof signal_stack;
    sigaltstack(&held, 0);
}

static void run_guarded(void) {
    struct sigaction mine;
    memset(&mine, 0, sizeof mine);
    mine.sa_sigaction = on_signal;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    need_signal_stack();
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &mine, &before[i]);
    runner = pthread_self();
    running = 1;
    if (!sigsetjmp(escape, 1)) run_blocks();
    running = 0;
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], 0);
    /* Stacks of threads that never end are taken from them. */
    machine.idle_count = machine.made;
    memcpy(machine.idle, machine.fibers, (size_t)machine.made * sizeof *machine.idle);
}
