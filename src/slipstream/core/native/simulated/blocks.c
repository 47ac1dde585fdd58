/* Which bytes of which memory may be touched: units (what the driver gave out), blocks (what an
   allocator made of them), and blocks of the past, which work sent earlier may still use. */

#define CLASSES 48
#define PRESENT 0 /* the end of a block that lives */
#define SLIP_SPAN 40 /* what a moment is below this bit; above it, how many are meant */
#define SLIP_LAST (((u64)1 << SLIP_SPAN) - 1)

typedef struct part {
    u64 start, end;
} part;

/* Who wrote a byte last, and who read it since. */
typedef struct history {
    uint32_t writer, readers;
} history;

/* A page's history: one for all its bytes, or one for each. */
typedef struct page {
    history all, *bytes;
} page;

/* What one call of the driver gave out: memory, or addresses behind which memory is mapped. */
typedef struct unit {
    u64 start, size;
    int device, host, mapped, managed; /* mapped: the host's, and kernels may touch it */
    part *parts;
    unsigned part_count;
    unsigned char *touch; /* a mark for each byte, while a kernel runs */
    unsigned char *pages; /* a mark for each page that has marks */
    page *history;
} unit;

/* A block from `born` until `dead`, in moments: the count of blocks handed out and taken back. */
typedef struct block {
    u64 start, size, requested, born, dead, identity;
    int fresh;
} block;

typedef struct block_list {
    block **blocks;
    unsigned count, room;
} block_list;

typedef struct access_record {
    uint32_t slot, clock;
    u64 moment;
} access_record;

#define SET_BIT 0x80000000u
#define SET_SIZE 7
typedef struct reader_set {
    uint32_t count, ids[SET_SIZE];
} reader_set;

#define MAX_USED 4096
typedef struct world {
    unit **units;
    unsigned unit_count, unit_room;
    block_list classes[CLASSES];
    u64 moment, identities, dead_count;
    int poison, race, peer;
    /* The work that runs now. */
    u64 work_moment, work_span;
    int work_device;
    uint32_t work_id;
    uint32_t work_slot, clock_count;
    const uint32_t *clock;
    slip_block used[MAX_USED];
    unit *used_units[MAX_USED];
    unsigned used_count;
    /* Everybody who touched something. */
    access_record *records;
    uint32_t record_count, record_room;
    reader_set *sets;
    uint32_t set_count, set_room;
    uint32_t last_set_from, last_set_to, last_reported;
} world;

static world *here; /* the world of the work that runs now */
static const slip_block nowhere, unmapped, foreign;
static unsigned char bin[1 << 16] __attribute__((aligned(64)));

API world *slip_world_new(int poison, int race, int peer) {
    world *w = (world *)calloc(1, sizeof *w);
    w->poison = poison;
    w->race = race;
    w->peer = peer;
    w->record_count = 1;
    w->set_count = 1;
    return w;
}

/* -- memory of the operating system -- */

static u64 mapped_at(u64 hint, u64 size, int protection) {
    void *at = mmap((void *)hint, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    return at == MAP_FAILED ? 0 : (u64)at;
}

API u64 slip_memory_new(u64 hint, u64 size, int usable) {
    return mapped_at(hint, size, usable ? PROT_READ | PROT_WRITE : PROT_NONE);
}

API void slip_memory_free(u64 address, u64 size) { munmap((void *)address, size); }

API int slip_memory_map(u64 address, u64 size, int file, u64 offset) {
    return mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                (off_t)offset) == MAP_FAILED;
}

API int slip_memory_unmap(u64 address, u64 size) {
    return mmap((void *)address, size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED;
}

/* -- units -- */

/* How many units begin at or before an address. */
static unsigned units_before(const world *w, u64 address) {
    unsigned low = 0, high = w->unit_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (w->units[middle]->start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static unit *unit_at(const world *w, u64 address) {
    unsigned n = units_before(w, address);
    if (!n) return 0;
    unit *u = w->units[n - 1];
    return address - u->start < u->size ? u : 0;
}

static void *shadow_new(u64 size) {
    void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    return at == MAP_FAILED ? 0 : at;
}

API void slip_unit_add(world *w, u64 start, u64 size, int device, int host, int mapped) {
    if (w->unit_count == w->unit_room) {
        w->unit_room = w->unit_room ? 2 * w->unit_room : 64;
        w->units = (unit **)realloc(w->units, w->unit_room * sizeof *w->units);
    }
    unit *u = (unit *)calloc(1, sizeof *u);
    u->start = start;
    u->size = size;
    u->device = device;
    u->host = host;
    u->mapped = mapped;
    unsigned n = units_before(w, start);
    memmove(w->units + n + 1, w->units + n, (w->unit_count - n) * sizeof *w->units);
    w->units[n] = u;
    w->unit_count++;
}

API void slip_part_add(world *w, u64 start, u64 size);

/* Memory of a device is mapped into a range of addresses that were reserved. */
API void slip_part_add_on(world *w, u64 start, u64 size, int device) {
    unit *u = unit_at(w, start);
    if (u) u->device = device;
    slip_part_add(w, start, size);
}

/* Memory is behind [start, start + size) from now on; neighbours become one part. */
API void slip_part_add(world *w, u64 start, u64 size) {
    unit *u = unit_at(w, start);
    u64 end = start + size;
    if (!u) return;
    u->parts = (part *)realloc(u->parts, (u->part_count + 1) * sizeof *u->parts);
    unsigned n = 0;
    while (n < u->part_count && u->parts[n].end < start) n++;
    unsigned last = n;
    while (last < u->part_count && u->parts[last].start <= end) {
        if (u->parts[last].start < start) start = u->parts[last].start;
        if (u->parts[last].end > end) end = u->parts[last].end;
        last++;
    }
    memmove(u->parts + n + 1, u->parts + last, (u->part_count - last) * sizeof *u->parts);
    u->part_count = u->part_count - (last - n) + 1;
    u->parts[n].start = start;
    u->parts[n].end = end;
}

API void slip_part_remove(world *w, u64 start, u64 size) {
    unit *u = unit_at(w, start);
    u64 end = start + size;
    if (!u) return;
    part *kept = (part *)calloc(u->part_count + 2, sizeof *kept);
    unsigned count = 0;
    for (unsigned i = 0; i < u->part_count; i++) {
        part p = u->parts[i];
        if (p.end <= start || p.start >= end) {
            kept[count++] = p;
            continue;
        }
        if (p.start < start) kept[count++] = (part){p.start, start};
        if (p.end > end) kept[count++] = (part){end, p.end};
    }
    free(u->parts);
    u->parts = kept;
    u->part_count = count;
}

static const part *part_of(const unit *u, u64 address) {
    for (unsigned i = 0; i < u->part_count; i++)
        if (address >= u->parts[i].start && address < u->parts[i].end) return &u->parts[i];
    return 0;
}

/* Whether memory lies behind every byte of a range. */
API int slip_is_mapped(world *w, u64 address, u64 nbytes) {
    unit *u = unit_at(w, address);
    const part *p = u ? part_of(u, address) : 0;
    return p && nbytes <= p->end - address;
}

static u64 pages_of(const unit *u) { return u->size / SLIP_PAGE + 1; }

static void watch(unit *u) {
    if (u->touch) return;
    u->touch = (unsigned char *)shadow_new(u->size);
    u->pages = (unsigned char *)shadow_new(pages_of(u));
    u->history = (page *)shadow_new(pages_of(u) * sizeof(page));
}

static void unwatch(unit *u) {
    if (!u->touch) return;
    for (u64 i = 0; i < pages_of(u); i++) free(u->history[i].bytes);
    munmap(u->touch, u->size);
    munmap(u->pages, pages_of(u));
    munmap(u->history, pages_of(u) * sizeof(page));
}

static void forget_blocks(world *w, u64 start, u64 size);

API void slip_unit_remove(world *w, u64 start) {
    unsigned n = units_before(w, start);
    if (!n || w->units[n - 1]->start != start) return;
    unit *u = w->units[n - 1];
    forget_blocks(w, u->start, u->size);
    unwatch(u);
    memmove(w->units + n - 1, w->units + n, (w->unit_count - n) * sizeof *w->units);
    w->unit_count--;
    free(u->parts);
    free(u);
}

/* -- blocks -- */

static unsigned class_of(u64 size) {
    unsigned n = 0;
    while (n < CLASSES - 1 && ((u64)1 << n) < size) n++;
    return n;
}

/* How many blocks of a list begin at or before an address. */
static unsigned blocks_before(const block_list *list, u64 address) {
    unsigned low = 0, high = list->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (list->blocks[middle]->start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

API u64 slip_handed_out(world *w, u64 address, u64 size, u64 requested) {
    unit *u = unit_at(w, address);
    if (!size) return 0;
    block_list *list = &w->classes[class_of(size)];
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->blocks = (block **)realloc(list->blocks, list->room * sizeof *list->blocks);
    }
    block *b = (block *)calloc(1, sizeof *b);
    b->start = address;
    b->size = size;
    b->requested = requested;
    b->born = ++w->moment;
    b->identity = ++w->identities;
    b->fresh = !u || !u->host;
    unsigned n = blocks_before(list, address);
    memmove(list->blocks + n + 1, list->blocks + n, (list->count - n) * sizeof *list->blocks);
    list->blocks[n] = b;
    list->count++;
    if (u) u->managed = 1;
    return b->identity;
}

/* The block that lives now at an address gives it up; 0 where there is none. */
API u64 slip_taken_back(world *w, u64 address, u64 size) {
    block_list *list = &w->classes[class_of(size)];
    for (unsigned n = blocks_before(list, address); n > 0; n--) {
        block *b = list->blocks[n - 1];
        if (b->start != address) return 0;
        if (b->dead != PRESENT) continue;
        b->dead = ++w->moment;
        w->dead_count++;
        return b->identity;
    }
    return 0;
}

API u64 slip_moment(const world *w) { return w->moment; }
API u64 slip_dead_count(const world *w) { return w->dead_count; }

/* Forget blocks that died by a moment: no work that knew them is left. */
API void slip_forget_dead(world *w, u64 moment) {
    for (unsigned c = 0; c < CLASSES; c++) {
        block_list *list = &w->classes[c];
        unsigned kept = 0;
        for (unsigned i = 0; i < list->count; i++) {
            block *b = list->blocks[i];
            if (b->dead == PRESENT || b->dead > moment) {
                list->blocks[kept++] = b;
            } else {
                free(b);
                w->dead_count--;
            }
        }
        list->count = kept;
    }
}

static void forget_blocks(world *w, u64 start, u64 size) {
    for (unsigned c = 0; c < CLASSES; c++) {
        block_list *list = &w->classes[c];
        unsigned kept = 0;
        for (unsigned i = 0; i < list->count; i++) {
            block *b = list->blocks[i];
            if (b->start - start >= size) {
                list->blocks[kept++] = b;
                continue;
            }
            w->dead_count -= b->dead != PRESENT;
            free(b);
        }
        list->count = kept;
    }
}

/* The block at an address as of a moment; `past`: the one that died last before it. */
static block *block_at(const world *w, u64 address, u64 moment, int past) {
    block *found = 0;
    for (unsigned c = 0; c < CLASSES; c++) {
        const block_list *list = &w->classes[c];
        if (!list->count) continue;
        for (unsigned n = blocks_before(list, address); n > 0; n--) {
            block *b = list->blocks[n - 1];
            if (address - b->start >= (u64)1 << c) break;
            if (address - b->start >= b->size || b->born > moment) continue;
            if (!past && (b->dead == PRESENT || moment < b->dead)) return b;
            if (past && b->dead != PRESENT && (!found || b->dead > found->dead)) found = b;
        }
    }
    return found;
}

/* Whether every block at an address in the work's span of moments is fresh; none is from here. */
static int all_fresh(const world *w, u64 address) {
    int fresh = 1;
    for (u64 moment = w->work_moment - w->work_span; moment <= w->work_moment; moment++) {
        block *b = block_at(w, address, moment, 0);
        if (!b) continue;
        fresh = fresh && b->fresh;
        b->fresh = 0;
    }
    return fresh;
}

/* The block at an address in the work's span of moments that may be touched furthest. */
static block *widest_at(const world *w, u64 address) {
    block *widest = 0;
    for (u64 moment = w->work_moment - w->work_span; moment <= w->work_moment; moment++) {
        block *b = block_at(w, address, moment, 0);
        if (b && (!widest || b->requested > widest->requested)) widest = b;
    }
    return widest;
}

/* The bytes around an address that the running work may touch. */
static const slip_block *allowed(world *w, u64 address, unit **owner) {
    unit *u = unit_at(w, address);
    const part *p = u ? part_of(u, address) : 0;
    *owner = u;
    if (!u) return &nowhere;
    if (!p) return &unmapped;
    if (w->work_device >= 0 && !w->peer && (u->host ? !u->mapped : u->device != w->work_device))
        return &foreign;
    slip_block *at = &w->used[w->used_count];
    memset(at, 0, sizeof *at);
    if (u->managed) {
        block *b = widest_at(w, address);
        if (!b) return &nowhere;
        if (b->start < p->start || b->size > p->end - b->start) return &unmapped;
        if (all_fresh(w, address) && w->poison) memset((void *)b->start, 0xff, b->size);
        at->start = (char *)b->start;
        at->size = b->requested;
        at->identity = b->identity;
    } else {
        at->start = (char *)p->start;
        at->size = p->end - p->start;
    }
    return at;
}

static const slip_block *find_in(world *w, u64 address, unit **owner) {
    for (unsigned i = 0; i < w->used_count; i++) {
        const slip_block *b = &w->used[i];
        *owner = w->used_units[i];
        if (address - (u64)b->start < b->size) return b;
    }
    const slip_block *b = allowed(w, address, owner);
    if (b != &w->used[w->used_count]) return b;
    w->used_units[w->used_count] = *owner;
    if (w->used_count < MAX_USED - 1) w->used_count++;
    return b;
}

static const slip_block *find(slip_context *c, u64 address) {
    unit *owner;
    (void)c;
    slip_block *b = (slip_block *)find_in(here, address, &owner);
    int real = b != &nowhere && b != &unmapped && b != &foreign;
    if (real && here->race && !owner->mapped && !b->touch) {
        watch(owner);
        b->first = (u64)b->start - owner->start;
        b->touch = owner->touch + b->first;
        b->pages = owner->pages;
    }
    return b;
}

/* A work's access goes wrong: note why, and give it a bin of zeros instead. */
static void *refuse(slip_context *c, const slip_block *b, const void *at, unsigned nbytes,
                    int access) {
    u64 address = (u64)at, offset = address - (u64)b->start;
    slip_fault *fault = new_fault(SLIP_OUTSIDE);
    (void)c;
    fault->access = access;
    fault->address = address;
    fault->nbytes = nbytes;
    fault->start = (u64)b->start;
    fault->size = b->size;
    fault->identity = b->identity;
    if (b == &unmapped) fault->kind = SLIP_UNMAPPED;
    if (b == &nowhere || b == &foreign) {
        block *past = block_at(here, address, here->work_moment, 1);
        fault->kind = SLIP_NOWHERE;
        fault->other = b == &foreign;
        if (past) {
            fault->start = past->start;
            fault->size = past->requested;
            fault->identity = past->identity;
        }
    }
    if (offset < b->size && b->size - offset >= nbytes) fault->kind = SLIP_MISALIGNED;
    memset(bin, 0, nbytes < sizeof bin ? nbytes : sizeof bin);
    return bin;
}

API void slip_world_free(world *w) {
    while (w->unit_count) slip_unit_remove(w, w->units[w->unit_count - 1]->start);
    for (unsigned c = 0; c < CLASSES; c++) {
        for (unsigned i = 0; i < w->classes[c].count; i++) free(w->classes[c].blocks[i]);
        free(w->classes[c].blocks);
    }
    free(w->units);
    free(w->records);
    free(w->sets);
    if (here == w) here = 0;
    free(w);
}
