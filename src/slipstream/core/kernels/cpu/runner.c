/* Runs bound programs: walks the groups, phases and blocks of a layout. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_SCRATCH 4096
#define STACK_SCRATCH 65536
#define PARALLEL_LEAST 262144 /* elements touched: below, waking threads costs more than it gives */
#define SHARES 4              /* tasks for each thread */

extern const slip_table slip_table_base, slip_table_avx2, slip_table_avx512;

const slip_table *slip_loops(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        && __builtin_cpu_supports("bmi2");
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2 && wide) return &slip_table_avx512;
    if (avx2) return &slip_table_avx2;
#endif
    return &slip_table_base;
}

/* One run, and what a thread knows of it. */
typedef struct {
    const slip_code *code;
    const slip_layout *layout;
    const size_t *addresses;
    const char *numbers;
} run_call;

typedef struct {
    const slip_code *code;
    const slip_layout *layout;
    const size_t *addresses;
    char *uniform, *row, *expanded, *kept, *state, *slots;
    char **full, **lines;     /* where each value is, for full steps and for row steps */
    int64_t first, count;     /* rows of the group (columnar: columns within the run) */
    int64_t outer_run;        /* columnar: which run of the outer dims */
} worker;

/* The part of a group that one pass of the loops takes. */
typedef struct {
    int64_t a, a_count;       /* rows (columnar: steps along the inner dims) */
    int64_t b, b_count;       /* runs within a row (columnar: the run of the outer dims) */
    int64_t start, length;    /* elements of each run */
    int64_t base;             /* place of its first element in the row */
} block;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t offset_of(int rank, const int64_t *sizes, const int64_t *strides, int64_t index) {
    if (rank == 1) return index * strides[0];
    int64_t offset = 0;
    for (int i = rank - 1; i > 0; i--) {
        offset += index % sizes[i] * strides[i];
        index /= sizes[i];
    }
    return rank ? offset + index * strides[0] : 0;
}

/* ---- moving blocks between operands and buffers ---- */

/* One run: from the operand into the buffer, or back. */
static void move_run(const slip_operand *o, int64_t n, char *memory, int64_t stride, char *buffer) {
    if (o->load) o->load(n, buffer, memory, stride);
    else o->store(n, memory, stride, buffer);
}

/* Where the first element of a block of an operand is. */
static char *block_address(const worker *w, int operand, const block *k) {
    const slip_layout *l = w->layout;
    const slip_place *p = &l->place[operand];
    int64_t offset;
    if (l->columnar) {
        const int last = l->outer_rank - 1;
        offset = offset_of(l->inner_rank, l->inner, p->inner, k->a)
            + offset_of(last, l->outer, p->outer, k->b) + k->start * p->outer[last];
    } else {
        const int last = l->inner_rank - 1;
        offset = offset_of(l->outer_rank, l->outer, p->outer, k->a)
            + offset_of(last, l->inner, p->inner, k->b) + k->start * p->inner[last];
    }
    return (char *)w->addresses[operand] + offset * w->code->operand[operand].itemsize;
}

#define TRANSPOSE(T)                                                        \
    do {                                                                    \
        T *r = (T *)dst;                                                    \
        const T *s = (const T *)src;                                        \
        for (int64_t i = 0; i < rows; i++) {                                \
            for (int64_t j = 0; j < columns; j++) r[i * columns + j] = s[j * rows + i]; \
        }                                                                   \
    } while (0)

typedef struct { uint64_t low, high; } pair;

static void transpose(char *dst, const char *src, int64_t rows, int64_t columns, int64_t size) {
    if (size == 2) TRANSPOSE(uint16_t);
    else if (size == 4) TRANSPOSE(uint32_t);
    else if (size == 8) TRANSPOSE(uint64_t);
    else if (size == 1) TRANSPOSE(uint8_t);
    else TRANSPOSE(pair);
}

/* A tile that lies the other way round in memory: read as it lies, turned over in the cache. */
static void load_turned(const worker *w, int operand, const block *k, char *buffer) {
    char tile[SLIP_BLOCK * SLIP_ITEM] __attribute__((aligned(64)));
    const slip_layout *l = w->layout;
    const slip_operand *o = &w->code->operand[operand];
    const int64_t size = w->code->value[o->value].size;
    const int64_t along = l->place[operand].outer[l->outer_rank - 1];
    const int64_t stride = l->place[operand].inner[0] * o->itemsize;
    const char *memory = block_address(w, operand, k);
    for (int64_t j = 0; j < k->length; j++) {
        o->load(k->a_count, tile + j * k->a_count * size, memory + j * stride, along);
    }
    transpose(buffer, tile, k->a_count, k->length, size);
}

static int is_turned(const slip_layout *l, int operand) {
    const int64_t along = l->place[operand].outer[l->outer_rank - 1];
    const int64_t across = l->place[operand].inner[0];
    return along != 0 && (along < 0 ? -along : along) < (across < 0 ? -across : across);
}

/* The first run of `bytes` again and again, `times` in all. */
static void repeat(char *buffer, int64_t bytes, int64_t times) {
    int64_t done = bytes;
    const int64_t total = bytes * times;
    while (done < total) {
        const int64_t more = smaller(done, total - done);
        memcpy(buffer + done, buffer, (size_t)more);
        done += more;
    }
}

static void move_block(const worker *w, int operand, const block *k, char *buffer) {
    const slip_layout *l = w->layout;
    const slip_operand *o = &w->code->operand[operand];
    const slip_place *p = &l->place[operand];
    const int columnar = l->columnar;
    const int a_rank = columnar ? l->inner_rank : l->outer_rank;
    const int b_rank = (columnar ? l->outer_rank : l->inner_rank) - 1;
    const int64_t *a_sizes = columnar ? l->inner : l->outer;
    const int64_t *b_sizes = columnar ? l->outer : l->inner;
    const int64_t *a_strides = columnar ? p->inner : p->outer;
    const int64_t *b_strides = columnar ? p->outer : p->inner;
    const int64_t stride = b_strides[b_rank];
    char *memory = (char *)w->addresses[operand] + k->start * stride * o->itemsize;
    const int64_t size = w->code->value[o->value].size;
    /* Runs at one distance from each other: one longer run. */
    if (k->b_count == 1 && a_rank == 1 && (k->length == 1 || a_strides[0] == k->length * stride)) {
        memory += (k->a * a_strides[0] + offset_of(b_rank, b_sizes, b_strides, k->b)) * o->itemsize;
        const int64_t step = k->length == 1 ? a_strides[0] : stride;
        move_run(o, k->a_count * k->length, memory, step, buffer);
        return;
    }
    if (l->tiled && o->load && is_turned(l, operand)) {
        load_turned(w, operand, k, buffer);
        return;
    }
    int64_t a_count = k->a_count;
    char *first = buffer;
    if (o->load && a_rank == 1 && a_strides[0] == 0) a_count = 1;
    for (int64_t i = 0; i < a_count; i++) {
        const int64_t outer = offset_of(a_rank, a_sizes, a_strides, k->a + i);
        for (int64_t j = 0; j < k->b_count; j++) {
            const int64_t inner = offset_of(b_rank, b_sizes, b_strides, k->b + j);
            move_run(o, k->length, memory + (outer + inner) * o->itemsize, stride, buffer);
            buffer += k->length * size;
        }
    }
    if (a_count < k->a_count) repeat(first, buffer - first, k->a_count);
}

/* The group's elements of a row operand. */
static void move_lines(const worker *w, int operand, char *buffer) {
    const slip_layout *l = w->layout;
    const slip_operand *o = &w->code->operand[operand];
    const int64_t *strides = l->place[operand].outer;
    const int last = l->outer_rank - 1;
    const int64_t run = l->outer[last], size = w->code->value[o->value].size;
    int64_t at = l->columnar ? w->outer_run * run + w->first : w->first;
    for (int64_t left = w->count; left > 0;) {
        const int64_t n = smaller(left, run - at % run);
        const int64_t offset = offset_of(l->outer_rank, l->outer, strides, at);
        char *memory = (char *)w->addresses[operand] + offset * o->itemsize;
        move_run(o, n, memory, strides[last], buffer);
        buffer += n * size;
        at += n;
        left -= n;
    }
}

/* ---- spreading values over blocks ---- */

#define FILL(T)                                             \
    do {                                                    \
        T *r = (T *)dst;                                    \
        T v;                                                \
        memcpy(&v, src, sizeof v);                          \
        for (int64_t i = 0; i < n; i++) r[i] = v;           \
    } while (0)

/* n copies of one element. */
static void fill(char *dst, const char *src, int64_t size, int64_t n) {
    if (size == 2) FILL(uint16_t);
    else if (size == 4) FILL(uint32_t);
    else if (size == 8) FILL(uint64_t);
    else if (size == 1) FILL(uint8_t);
    else FILL(pair);
}

/* A row value, for every element of a block. */
static void expand(const worker *w, int value) {
    const slip_layout *l = w->layout;
    const int64_t size = w->code->value[value].size;
    const char *src = w->lines[value];
    char *dst = w->full[value];
    if (l->columnar) {
        memcpy(dst, src, (size_t)(w->count * size));
        repeat(dst, w->count * size, l->repeat);
        return;
    }
    const int64_t width = l->group == 1 ? l->capacity : l->width;
    for (int64_t i = 0; i < w->count; i++) {
        fill(dst + i * width * size, src + i * size, size, width);
    }
}

static void call(const slip_step *s, int64_t n, char *const *at) {
    s->loop(n, at[s->dst], s->a < 0 ? NULL : at[s->a], s->b < 0 ? NULL : at[s->b],
            s->c < 0 ? NULL : at[s->c]);
}

/* ---- groups, phases, blocks ---- */

/* Cuts scratch into regions, and sets the values that are the same in the whole domain. */
static void begin_worker(worker *w, const run_call *r, char *scratch) {
    const slip_code *code = r->code;
    const slip_layout *l = r->layout;
    w->code = code;
    w->layout = l;
    w->addresses = r->addresses;
    w->full = (char **)scratch;
    w->lines = w->full + code->values;
    w->uniform = scratch + ((16 * (int64_t)code->values + 63) & ~(int64_t)63);
    w->row = w->uniform + l->uniform_bytes;
    w->expanded = w->row + l->row_bytes;
    w->kept = w->expanded + l->expanded_bytes;
    w->state = w->kept + l->kept_bytes;
    w->slots = w->state + l->state_bytes * l->chunks;
    const int64_t n = l->capacity > l->group ? l->capacity : l->group;
    for (int v = 0; v < code->values; v++) {
        const slip_value *value = &code->value[v];
        if (value->level == SLIP_UNIFORM) {
            w->full[v] = w->lines[v] = w->uniform + l->where[v];
        } else if (value->level == SLIP_ROW) {
            w->lines[v] = w->row + l->where[v];
            w->full[v] = w->expanded + l->where[code->values + v];
        } else {
            w->full[v] = w->slots + l->where[v];
        }
    }
    for (int k = 0; k < code->numbers + code->constants; k++) {
        const int v = code->inputs + k;
        const char *number = k < code->numbers ? r->numbers + SLIP_ITEM * k
                                               : code->constant + SLIP_ITEM * (k - code->numbers);
        fill(w->uniform + l->where[v], number, code->value[v].size, n);
    }
    if (code->count >= 0) {
        fill(w->uniform + l->where[code->count], (const char *)&l->counted, 8, n);
    }
    for (int k = 0; k < code->uniforms; k++) call(&code->uniform[k], n, w->lines);
}

static void begin_group(worker *w, int64_t group) {
    const slip_layout *l = w->layout;
    if (l->columnar) {
        const int64_t pieces = (l->run + l->piece - 1) / l->piece;
        w->outer_run = group / pieces;
        w->first = group % pieces * l->piece;
        w->count = smaller(l->piece, l->run - w->first);
    } else {
        const int64_t groups = (l->span + l->group - 1) / l->group, at = group % groups * l->group;
        w->first = group / groups * l->span + at;
        w->count = smaller(l->group, l->span - at);
    }
    for (int k = w->code->outputs; k < w->code->operands; k++) {
        const int v = w->code->operand[k].value;
        if (w->code->value[v].level == SLIP_ROW) move_lines(w, k, w->lines[v]);
    }
}

/* What the full steps of a phase need of the rows. */
static void begin_phase(worker *w, int phase) {
    const slip_code *code = w->code;
    for (int k = code->row_begin[phase]; k < code->row_begin[phase + 1]; k++) {
        call(&code->row[k], w->count, w->lines);
    }
    if (phase == code->phases) return;
    for (int v = 0; v < code->values; v++) {
        const slip_value *value = &code->value[v];
        if (value->level == SLIP_ROW && value->expanded && value->first == phase) expand(w, v);
    }
}

static void begin_folds(const worker *w, int phase, char *state) {
    const int64_t bytes = w->layout->group * SLIP_STATE;
    for (int k = w->code->fold_begin[phase]; k < w->code->fold_begin[phase + 1]; k++) {
        w->code->fold[k].loops->begin(w->count, state + k * bytes);
    }
}

static block block_of(const worker *w, int64_t index) {
    const slip_layout *l = w->layout;
    block k;
    if (l->columnar) {
        k.a = index * l->repeat;
        k.a_count = smaller(l->repeat, l->width - k.a);
        k.b = w->outer_run;
        k.b_count = 1;
        k.start = w->first;
        k.length = w->count;
        k.base = k.a;
        return k;
    }
    k.a = w->first;
    k.a_count = w->count;
    if (l->repeat > 1 || (l->group > 1 && !l->tiled)) {
        k.b = index * l->repeat;
        k.b_count = smaller(l->repeat, l->width / l->run - k.b);
        k.start = 0;
        k.length = l->run;
    } else {
        const int64_t pieces = (l->run + l->piece - 1) / l->piece;
        k.b = index / pieces;
        k.b_count = 1;
        k.start = index % pieces * l->piece;
        k.length = smaller(l->piece, l->run - k.start);
    }
    k.base = k.b * l->run + k.start;
    return k;
}

/* Points every full value of a phase at its place for this block; loads what is new. */
static void begin_block(worker *w, int phase, const block *k) {
    const slip_code *code = w->code;
    const slip_layout *l = w->layout;
    const int64_t at = l->columnar ? k->base * w->count : k->base;
    if (l->kept_bytes) {
        for (int v = 0; v < code->values; v++) {
            if (l->kept[v] >= 0) w->full[v] = w->kept + l->kept[v] + at * code->value[v].size;
        }
    }
    for (int i = 0; i < code->operands; i++) {
        const int v = code->operand[i].value;
        if (l->place[i].direct) w->full[v] = block_address(w, i, k);
        else if (i >= code->outputs && code->value[v].level == SLIP_FULL
                 && code->value[v].first == phase) move_block(w, i, k, w->full[v]);
    }
}

static void end_block(worker *w, int phase, const block *k, char *state) {
    const slip_code *code = w->code;
    const slip_layout *l = w->layout;
    const int64_t n = k->a_count * k->b_count * k->length;
    for (int i = code->fold_begin[phase]; i < code->fold_begin[phase + 1]; i++) {
        const slip_fold *f = &code->fold[i];
        char *own = state + i * l->group * SLIP_STATE;
        if (l->columnar) f->loops->columns(k->a_count, w->count, own, w->full[f->source], k->base);
        else f->loops->rows(w->count, n / w->count, w->count, own, w->full[f->source], k->base);
    }
    for (int i = 0; i < code->outputs; i++) {
        const slip_value *value = &code->value[code->operand[i].value];
        if (value->level == SLIP_ROW || l->place[i].direct || value->first != phase) continue;
        if (value->level == SLIP_UNIFORM && code->lined) continue;
        move_block(w, i, k, w->full[code->operand[i].value]);
    }
}

static void run_blocks(worker *w, int phase, int64_t begin, int64_t end, char *state) {
    const slip_code *code = w->code;
    for (int64_t index = begin; index < end; index++) {
        const block k = block_of(w, index);
        const int64_t n = k.a_count * k.b_count * k.length;
        begin_block(w, phase, &k);
        for (int i = code->full_begin[phase]; i < code->full_begin[phase + 1]; i++) {
            call(&code->full[i], n, w->full);
        }
        end_block(w, phase, &k, state);
    }
}

static void end_phase(worker *w, int phase, const char *state) {
    const slip_code *code = w->code;
    const int64_t bytes = w->layout->group * SLIP_STATE;
    for (int k = code->fold_begin[phase]; k < code->fold_begin[phase + 1]; k++) {
        code->fold[k].loops->finish(w->count, w->lines[code->fold[k].dst], state + k * bytes);
    }
}

static void end_group(worker *w) {
    const slip_code *code = w->code;
    begin_phase(w, code->phases);
    for (int i = 0; i < code->outputs && code->lined; i++) {
        const int v = code->operand[i].value;
        if (code->value[v].level != SLIP_FULL) move_lines(w, i, w->lines[v]);
    }
}

static void run_group(worker *w, int64_t group) {
    begin_group(w, group);
    for (int phase = 0; phase < w->code->phases; phase++) {
        begin_phase(w, phase);
        begin_folds(w, phase, w->state);
        run_blocks(w, phase, 0, w->layout->blocks, w->state);
        end_phase(w, phase, w->state);
    }
    end_group(w);
}

/* ---- tasks ---- */

typedef struct {
    const run_call *call;
    int64_t tasks;
    int failed;
    worker *shared;    /* of a run by chunks */
    int phase;
} job;

/* A map of one block whose operands are all used in place. */
static void run_single(worker *w) {
    const slip_code *code = w->code;
    for (int k = 0; k < code->operands; k++) {
        w->full[code->operand[k].value] = (char *)w->addresses[k];
    }
    const int64_t n = w->layout->rows * w->layout->width;
    for (int k = 0; k < code->full_begin[1]; k++) call(&code->full[k], n, w->full);
}

static void groups_in(const job *j, int64_t task, char *scratch) {
    const int64_t groups = j->call->layout->groups;
    worker w;
    begin_worker(&w, j->call, scratch);
    if (j->call->layout->single) {
        run_single(&w);
        return;
    }
    const int64_t end = groups * (task + 1) / j->tasks;
    for (int64_t group = groups * task / j->tasks; group < end; group++) run_group(&w, group);
}

static void chunk_in(const job *j, int64_t task, char *scratch) {
    const slip_layout *l = j->call->layout;
    worker w = *j->shared;
    w.full = (char **)scratch;
    w.slots = scratch + ((8 * (int64_t)w.code->values + 63) & ~(int64_t)63);
    for (int v = 0; v < w.code->values; v++) {
        w.full[v] = w.code->value[v].level == SLIP_FULL ? w.slots + l->where[v]
                                                        : j->shared->full[v];
    }
    char *state = w.state + task * l->state_bytes;
    begin_folds(&w, j->phase, state);
    run_blocks(&w, j->phase, task * l->chunk, smaller((task + 1) * l->chunk, l->blocks), state);
}

typedef void (*body)(const job *j, int64_t task, char *scratch);

/* Scratch lies on the stack where it is small enough.  Separate functions: none reserves more. */
static __attribute__((noinline)) void on_stack(body run, const job *j, int64_t task) {
    char scratch[STACK_SCRATCH] __attribute__((aligned(64)));
    run(j, task, scratch);
}

static __attribute__((noinline)) void in_heap(body run, job *j, int64_t task, int64_t bytes) {
    char *scratch = malloc((size_t)bytes + 64);
    if (!scratch) {
        j->failed = 1;
        return;
    }
    run(j, task, (char *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63));
    free(scratch);
}

static void with_scratch(body run, job *j, int64_t task, int64_t bytes) {
    if (bytes <= STACK_SCRATCH) on_stack(run, j, task);
    else in_heap(run, j, task, bytes);
}

static void group_task(void *context, int64_t task) {
    job *j = context;
    with_scratch(groups_in, j, task, j->call->layout->scratch);
}

static void chunk_task(void *context, int64_t task) {
    job *j = context;
    const int64_t tables = (8 * (int64_t)j->call->code->values + 63) & ~(int64_t)63;
    with_scratch(chunk_in, j, task, tables + j->call->layout->slots_bytes);
}

/* Few long rows: each phase of a row is cut into chunks, whose states are merged in order. */
static void run_chunked(job *j, char *memory, int threads) {
    const slip_layout *l = j->call->layout;
    const slip_code *code = j->call->code;
    worker w;
    begin_worker(&w, j->call, memory);
    j->shared = &w;
    for (int64_t group = 0; group < l->groups; group++) {
        begin_group(&w, group);
        for (j->phase = 0; j->phase < code->phases; j->phase++) {
            begin_phase(&w, j->phase);
            slip_parallel(chunk_task, j, l->chunks, threads);
            for (int k = code->fold_begin[j->phase]; k < code->fold_begin[j->phase + 1]; k++) {
                char *state = w.state + k * l->group * SLIP_STATE;
                for (int64_t chunk = 1; chunk < l->chunks; chunk++) {
                    code->fold[k].loops->merge(w.count, state, state + chunk * l->state_bytes);
                }
            }
            end_phase(&w, j->phase, w.state);
        }
        end_group(&w);
    }
    j->shared = NULL;
}

static __attribute__((noinline)) void run_small(const job *j) {
    char scratch[SMALL_SCRATCH] __attribute__((aligned(64)));
    groups_in(j, 0, scratch);
}

int slip_run(const slip_code *code, const slip_layout *l, const size_t *addresses,
             const void *numbers, int threads) {
    const run_call call = {code, l, addresses, numbers};
    job j = {&call, 1, 0, NULL, 0};
    if (l->rows == 0 || (l->width == 0 && !code->lined)) return 0;
    threads = l->touched < PARALLEL_LEAST ? 1 : threads;
    if (l->chunks > 1) {
        char *memory = malloc((size_t)l->shared + 64);
        if (!memory) return -1;
        run_chunked(&j, (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63), threads);
        free(memory);
    } else if (l->scratch <= SMALL_SCRATCH && threads == 1) {
        run_small(&j);
    } else {
        j.tasks = threads == 1 ? 1 : smaller(l->groups, (int64_t)threads * SHARES);
        slip_parallel(group_task, &j, j.tasks, threads);
    }
    return -j.failed;
}
