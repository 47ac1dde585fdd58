/* Races: two works touch a byte, one of them writes, and nothing puts them in order.

   Work carries a vector clock: for each slot (the host, each stream) how far it is ordered after
   it.  Of each byte is kept who wrote it last and who read it since,
   of a page whose bytes were all touched alike only once. */

#define ATOMIC_BIT 0x80000000u

static int unordered(const world *w, uint32_t id) {
    const access_record *record = &w->records[id];
    if (!id || id == w->work_id) return 0;
    return record->slot >= w->clock_count || record->clock > w->clock[record->slot];
}

/* The same, or the order is only the allocator's, which lets a block's next owner wait, and both
   are accesses to one block: another time the program would get a block that needs no wait. */
static int conflicting(const world *w, uint32_t id, u64 address) {
    const access_record *record = &w->records[id];
    if (!id || id == w->work_id) return 0;
    if (unordered(w, id)) return 1;
    if (record->clock <= w->clock[record->slot + 1]) return 0;
    const block *mine = block_at(w, address, w->work_moment, 0);
    return mine && mine == block_at(w, address, record->moment, 0);
}

static void report_race(world *w, u64 address, uint32_t other, int access, int theirs) {
    if (w->last_reported == other) return;
    w->last_reported = other;
    slip_fault *fault = new_fault(SLIP_RACE);
    fault->address = address;
    fault->access = access | theirs << 8;
    fault->other = other;
    block *b = block_at(w, address, w->work_moment, 0);
    if (b) {
        fault->start = b->start;
        fault->size = b->requested;
        fault->identity = b->identity;
    }
}

static uint32_t new_set(world *w) {
    if (w->set_count >= w->set_room) {
        w->set_room = w->set_room ? 2 * w->set_room : 256;
        w->sets = (reader_set *)realloc(w->sets, w->set_room * sizeof *w->sets);
    }
    memset(&w->sets[w->set_count], 0, sizeof *w->sets);
    return w->set_count++;
}

/* The readers `old` and the running work: those that are ordered before it are left out. */
static uint32_t with_reader(world *w, uint32_t old) {
    if (!(old & SET_BIT) && !unordered(w, old)) return w->work_id;
    if (old == w->last_set_from) return w->last_set_to;
    uint32_t made = new_set(w);
    reader_set from = {1, {old}}, *to = &w->sets[made];
    if (old & SET_BIT) from = w->sets[old & ~SET_BIT];
    for (uint32_t i = 0; i < from.count && to->count < SET_SIZE - 1; i++)
        if (unordered(w, from.ids[i])) to->ids[to->count++] = from.ids[i];
    to->ids[to->count++] = w->work_id;
    w->last_set_from = old;
    w->last_set_to = made | SET_BIT;
    return w->last_set_to;
}

static void check_readers(world *w, u64 address, uint32_t readers, int access) {
    if (!(readers & SET_BIT)) {
        if (conflicting(w, readers, address)) report_race(w, address, readers, access, SLIP_READ);
        return;
    }
    const reader_set *set = &w->sets[readers & ~SET_BIT];
    for (uint32_t i = 0; i < set->count; i++)
        if (conflicting(w, set->ids[i], address))
            report_race(w, address, set->ids[i], access, SLIP_READ);
}

/* Bytes with one history, of which `address` is the first: what their history is now. */
static history settled(world *w, u64 address, history past, int access) {
    uint32_t id = past.writer & ~ATOMIC_BIT;
    int atomics = (past.writer & ATOMIC_BIT) && access == SLIP_ATOMIC;
    if (!atomics && conflicting(w, id, address)) report_race(w, address, id, access, SLIP_WRITE);
    if (access == SLIP_READ) {
        past.readers = with_reader(w, past.readers);
        return past;
    }
    check_readers(w, address, past.readers, access);
    return (history){w->work_id | (access == SLIP_ATOMIC ? ATOMIC_BIT : 0), 0};
}

#define RUN 16
static int equal_run(const history *values, history value) {
    uint32_t different = 0;
    for (int i = 0; i < RUN; i++)
        different |= (values[i].writer ^ value.writer) | (values[i].readers ^ value.readers);
    return !different;
}

static int same(history a, history b) { return a.writer == b.writer && a.readers == b.readers; }

/* Bytes of a page whose bytes have histories of their own. */
static void settle_each(world *w, u64 address, history *bytes, u64 count, int access) {
    for (u64 first = 0, next; first < count; first = next) {
        history past = bytes[first], now;
        next = first + 1;
        while (next + RUN <= count && equal_run(bytes + next, past)) next += RUN;
        while (next < count && same(bytes[next], past)) next++;
        now = settled(w, address + first, past, access);
        if (!same(now, past))
            for (u64 i = first; i < next; i++) bytes[i] = now;
    }
}

static void settle_page(world *w, unit *u, u64 first, u64 count, int access) {
    page *p = &u->history[first / SLIP_PAGE];
    u64 offset = first % SLIP_PAGE;
    if (count == SLIP_PAGE && !p->bytes) {
        p->all = settled(w, u->start + first, p->all, access);
        return;
    }
    if (!p->bytes) {
        p->bytes = (history *)malloc(SLIP_PAGE * sizeof(history));
        for (int i = 0; i < SLIP_PAGE; i++) p->bytes[i] = p->all;
    }
    settle_each(w, u->start + first, p->bytes + offset, count, access);
    if (count == SLIP_PAGE && access != SLIP_READ) {
        p->all = p->bytes[0];
        free(p->bytes);
        p->bytes = 0;
    }
}

/* The running work touches a range of a unit in one way. */
static void settle(world *w, unit *u, u64 first, u64 count, int access) {
    if (access & SLIP_WRITE) access = SLIP_WRITE;
    else if (access & SLIP_ATOMIC) access = access & SLIP_READ ? SLIP_WRITE : SLIP_ATOMIC;
    while (count) {
        u64 here_now = SLIP_PAGE - first % SLIP_PAGE;
        if (here_now > count) here_now = count;
        settle_page(w, u, first, here_now, access);
        first += here_now;
        count -= here_now;
    }
}

static u64 settle_some(world *w, unit *u, u64 first, u64 end) {
    unsigned char *marks = u->touch;
    u64 next = first + 1, word, pattern = marks[first] * 0x0101010101010101ull;
    while (next + 8 <= end && (memcpy(&word, marks + next, 8), word == pattern)) next += 8;
    while (next < end && marks[next] == marks[first]) next++;
    if (marks[first]) {
        settle(w, u, first, next - first, marks[first]);
        memset(marks + first, 0, next - first);
    }
    return next;
}

/* The marks that a kernel left in a block, on the pages where it left some. */
static void settle_marks(world *w, unit *u, const slip_block *b) {
    u64 start = (u64)b->start - u->start, end = start + b->size;
    for (u64 page = start / SLIP_PAGE; page * SLIP_PAGE < end; page++) {
        u64 first = page * SLIP_PAGE, last = first + SLIP_PAGE;
        if (!u->pages[page]) continue;
        if (first < start) first = start;
        while (last < end && u->pages[last / SLIP_PAGE]) last += SLIP_PAGE;
        if (last > end) last = end;
        for (u64 at = first; at < last;) at = settle_some(w, u, at, last);
        page = (last - 1) / SLIP_PAGE;
    }
}

/* The pages of a block have no marks; blocks may share them, so this comes after all of them. */
static void clear_pages(unit *u, const slip_block *b) {
    u64 first = ((u64)b->start - u->start) / SLIP_PAGE;
    u64 last = ((u64)b->start - u->start + b->size - 1) / SLIP_PAGE;
    memset(u->pages + first, 0, last - first + 1);
}

static void settle_all(world *w) {
    for (unsigned i = 0; i < w->used_count; i++)
        if (w->used[i].touch && w->used[i].size) settle_marks(w, w->used_units[i], &w->used[i]);
    for (unsigned i = 0; i < w->used_count; i++)
        if (w->used[i].touch && w->used[i].size) clear_pages(w->used_units[i], &w->used[i]);
}

/* -- a piece of work -- */

/* The next accesses are those of one work; returns its number, 0 where races are not watched. */
API uint32_t slip_begin(world *w, u64 moment, int device, uint32_t slot, const uint32_t *clock,
                        uint32_t clock_count) {
    here = w;
    /* Joined launches were recorded over some moments: the last, and how many before it. */
    w->work_moment = moment & SLIP_LAST;
    w->work_span = moment >> SLIP_SPAN;
    w->work_device = device;
    w->used_count = 0;
    w->last_reported = w->last_set_from = 0;
    w->work_id = 0;
    if (!w->race) return 0;
    if (w->record_count >= w->record_room) {
        w->record_room = w->record_room ? 2 * w->record_room : 4096;
        w->records = (access_record *)realloc(w->records, w->record_room * sizeof *w->records);
    }
    w->clock = clock;
    w->clock_count = clock_count;
    w->work_slot = slot;
    w->work_id = w->record_count++;
    w->records[w->work_id].slot = slot;
    w->records[w->work_id].moment = w->work_moment;
    w->records[w->work_id].clock = slot < clock_count ? clock[slot] : 0;
    return w->work_id;
}

/* The running work touches a whole range; whether it may. */
API int slip_access(world *w, u64 address, u64 nbytes, int access) {
    unit *u;
    if (!nbytes) return 1;
    const slip_block *b = find_in(w, address, &u);
    u64 offset = address - (u64)b->start;
    if (offset >= b->size || b->size - offset < nbytes) {
        unsigned told = nbytes > 0xffffffffu ? 0xffffffffu : (unsigned)nbytes;
        refuse(0, b, (void *)address, told, access);
        return 0;
    }
    if (!w->race || u->mapped) return 1;
    watch(u);
    settle(w, u, address - u->start, nbytes, access);
    return 1;
}

/* Whether an address is memory that the driver gave out: 0 no, 1 a card's, 2 the host's. */
API int slip_kind_of(world *w, u64 address) {
    unit *u = unit_at(w, address);
    return !u ? 0 : u->host ? 2 : 1;
}

API int slip_device_of(world *w, u64 address) {
    unit *u = unit_at(w, address);
    return u ? u->device : -1;
}

API unsigned slip_run(world *w, const slip_kernel *kernel, const slip_triple *sizes,
                      unsigned shared, const unsigned char *parameters, u64 seed,
                      const slip_image *image) {
    slip_context *c = &machine.context;
    memset(c, 0, sizeof *c);
    c->grid_dim = sizes[0];
    c->block_dim = sizes[1];
    c->parameters = parameters;
    c->shared_size = shared;
    c->next = next_thread;
    c->barrier = at_barrier;
    c->meet = at_meeting;
    c->together = together;
    c->find = find;
    c->refuse = refuse;
    c->trap = trap;
    c->bad_index = bad_index;
    c->shared.size = shared;
    machine.kernel = kernel;
    machine.image = image;
    machine.cluster = kernel->cluster;
    machine.block_threads = sizes[1].x * sizes[1].y * sizes[1].z;
    machine.threads = machine.block_threads * machine.cluster;
    machine.blocks = (u64)sizes[0].x * sizes[0].y * sizes[0].z / machine.cluster;
    machine.warps = (machine.threads + SLIP_WARP - 1) / SLIP_WARP;
    place_threads(sizes[1]);
    machine.started = machine.threads;
    machine.live = 0;
    machine.ready_count = 0;
    machine.abandoned = 0;
    machine.poison = w->poison;
    machine.random = seed * 0x9e3779b97f4a7c15ull | 1;
    draw(2);
    machine.block_number = 0;
    machine.block_step = a_step(machine.blocks);
    u64 many = 0xffffffffu;
    machine.block_first = draw((unsigned)(machine.blocks < many ? machine.blocks : many));
    run_guarded();
    if (w->race) settle_all(w);
    return fault_count;
}
