/* Races: two works touch a byte, one of them writes, and nothing puts them in order.

   Work carries a vector clock: for each slot (the host, each stream) how far it is ordered after
   it.  Of each byte is kept who wrote it last and who read it since. */

#define ATOMIC_BIT 0x80000000u

static int unordered(const world *w, uint32_t id) {
    const access_record *record = &w->records[id];
    if (!id || id == w->work_id) return 0;
    return record->slot >= w->clock_count || record->clock > w->clock[record->slot];
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
    for (uint32_t i = 0; i < from.count; i++)
        if (unordered(w, from.ids[i]) && to->count < SET_SIZE - 1) to->ids[to->count++] = from.ids[i];
    to->ids[to->count++] = w->work_id;
    w->last_set_from = old;
    w->last_set_to = made | SET_BIT;
    return w->last_set_to;
}

static void check_readers(world *w, u64 address, uint32_t readers, int access) {
    if (!(readers & SET_BIT)) {
        if (unordered(w, readers)) report_race(w, address, readers, access, SLIP_READ);
        return;
    }
    const reader_set *set = &w->sets[readers & ~SET_BIT];
    for (uint32_t i = 0; i < set->count; i++)
        if (unordered(w, set->ids[i])) report_race(w, address, set->ids[i], access, SLIP_READ);
}

/* Bytes with one history. */
static void settle_equal(world *w, unit *u, u64 first, u64 count, int access) {
    uint32_t writer = u->writes[first], readers = u->reads[first];
    uint32_t id = writer & ~ATOMIC_BIT, value;
    int atomics = (writer & ATOMIC_BIT) && access == SLIP_ATOMIC;
    if (!atomics && unordered(w, id))
        report_race(w, u->start + first, id, access, SLIP_WRITE);
    if (access == SLIP_READ) {
        value = with_reader(w, readers);
        if (value != readers)
            for (u64 i = first; i < first + count; i++) u->reads[i] = value;
        return;
    }
    check_readers(w, u->start + first, readers, access);
    value = w->work_id | (access == SLIP_ATOMIC ? ATOMIC_BIT : 0);
    for (u64 i = first; i < first + count; i++) u->writes[i] = value;
    if (readers) memset(u->reads + first, 0, count * sizeof *u->reads);
}

static void settle(world *w, unit *u, u64 first, u64 count, int access) {
    if (access & SLIP_WRITE) access = SLIP_WRITE;
    else if (access & SLIP_ATOMIC) access = access & SLIP_READ ? SLIP_WRITE : SLIP_ATOMIC;
    for (u64 end = first + count, next; first < end; first = next) {
        uint32_t writer = u->writes[first], readers = u->reads[first];
        next = first + 1;
        while (next < end && u->writes[next] == writer && u->reads[next] == readers) next++;
        settle_equal(w, u, first, next - first, access);
    }
}

/* The marks that a kernel left in a block. */
static void settle_marks(world *w, unit *u, const slip_block *b) {
    unsigned char *marks = b->touch;
    u64 base = (u64)b->start - u->start, i = 0, next, word;
    while (i < b->size) {
        if (!marks[i]) {
            i++;
            while (!(i & 7) && i + 8 <= b->size && (memcpy(&word, marks + i, 8), !word)) i += 8;
            continue;
        }
        next = i + 1;
        while (next < b->size && marks[next] == marks[i]) next++;
        settle(w, u, base + i, next - i, marks[i]);
        memset(marks + i, 0, next - i);
        i = next;
    }
}

/* -- a piece of work -- */

/* The next accesses are those of one work; returns its number, 0 where races are not watched. */
API uint32_t slip_begin(world *w, u64 moment, int device, uint32_t slot, const uint32_t *clock,
                    uint32_t clock_count) {
    here = w;
    w->work_moment = moment;
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
        refuse(0, b, (void *)address, nbytes > 0xffffffffu ? 0xffffffffu : (unsigned)nbytes, access);
        return 0;
    }
    if (!w->race || u->mapped) return 1;
    watch(u);
    if (u->writes) settle(w, u, address - u->start, nbytes, access);
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

API unsigned slip_run(world *w, const slip_kernel *kernel, const slip_triple *sizes, unsigned shared,
              const unsigned char *parameters, u64 seed, const slip_image *image) {
    slip_context *c = &machine.context;
    memset(c, 0, sizeof *c);
    c->grid_dim = sizes[0];
    c->block_dim = sizes[1];
    c->parameters = parameters;
    c->shared_size = shared;
    c->next = next_thread;
    c->barrier = at_barrier;
    c->together = together;
    c->find = find;
    c->refuse = refuse;
    c->trap = trap;
    machine.kernel = kernel;
    machine.image = image;
    machine.threads = sizes[1].x * sizes[1].y * sizes[1].z;
    machine.blocks = (u64)sizes[0].x * sizes[0].y * sizes[0].z;
    machine.started = machine.threads;
    machine.live = machine.waiting = 0;
    machine.ready_count = 0;
    machine.abandoned = 0;
    machine.poison = w->poison;
    machine.random = seed * 0x9e3779b97f4a7c15ull | 1;
    draw(2);
    machine.block_number = 0;
    machine.block_step = a_step(machine.blocks);
    machine.block_first = draw(machine.blocks < 0xffffffffu ? (unsigned)machine.blocks : 0xffffffffu);
    run_blocks();
    for (unsigned i = 0; w->race && i < w->used_count; i++)
        if (w->used[i].touch) settle_marks(w, w->used_units[i], &w->used[i]);
    return fault_count;
}
