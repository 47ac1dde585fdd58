"""The CUDA C++ of sorting and searching; `sorting` says what is defined before it."""

from __future__ import annotations

HEAD = """
#define THREADS 256
#define TILE 4096
struct slip_sort {
    int64_t lines, length, kept, row, shift, tiles;
    // All ones where the largest comes first; whether nan wins; what is stored; entries of a line.
    int64_t flip, nans, places, one, line;
    int64_t step[3], shape[RANK], divider[RANK], strides[3][RANK];
};
struct slip_entry { sort_key_t key; uint32_t place; };
// All nan are one key, the largest; so are zeros.
SLIP_DEVICE sort_key_t slip_float_key(bits_t bits, bits_t sign, bits_t top) {
    const bits_t size = bits & (bits_t)~sign;
    if (size > top) return (sort_key_t)~(sort_key_t)0;
    if (size == 0) return (sort_key_t)sign;
    return (sort_key_t)(bits & sign ? (bits_t)~bits : (bits_t)(bits | sign));
}
// Where a line begins in the places, the values, the source.
SLIP_DEVICE int64_t slip_line(const slip_sort& sort, int64_t line, int operand) {
    place_t left = (place_t)line;
    int64_t offset = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--)
        offset += slip_take(left, sort.shape[d], sort.divider[d]) * sort.strides[operand][d];
    return offset;
}
SLIP_DEVICE bool slip_entry_less(const slip_entry& p, const slip_entry& q) {
    return p.key < q.key || (p.key == q.key && p.place < q.place);
}
SLIP_DEVICE slip_entry slip_no_entry() {
    slip_entry none;
    none.key = (sort_key_t)~(sort_key_t)0;
    none.place = 0xffffffffu;
    return none;
}
template <class O, class V, class S>
SLIP_DEVICE void slip_put(O places, V values, S source, const slip_sort& sort, int64_t line,
                          int64_t at, uint32_t place) {
    if (sort.places) places[slip_line(sort, line, 0) + at * sort.step[0]] = place;
    values[slip_line(sort, line, 1) + at * sort.step[1]] =
        source[slip_line(sort, line, 2) + place * sort.step[2]];
}
"""
# Sorts lines of a power of two of entries in shared memory by a bitonic network; ENTRIES in all.
NETWORK = """
SLIP_DEVICE void slip_network(slip_entry (&e)[ENTRIES], int line) {
    for (int size = 2; size <= line; size *= 2)
        for (int apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < ENTRIES / 2; pair += THREADS) {
                const int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
                const bool up = (i & (line - 1) & size) == 0;
                const slip_entry p = e[i], q = e[j];
                if (slip_entry_less(q, p) == up) {
                    e[i] = q;
                    e[j] = p;
                }
            }
        }
    __syncthreads();
}
"""
SORT_BLOCK = """
extern "C" __global__ void slip_sort_block(int64_t* places, bits_t* values, const bits_t* source,
                                           const slip_sort sort) {
    __shared__ slip_entry e[ENTRIES];
    const int width = (int)sort.line;
    const int64_t first = (int64_t)blockIdx.x * (ENTRIES / width);
    for (int i = threadIdx.x; i < ENTRIES; i += THREADS) {
        const int64_t line = first + i / width;
        const int at = i & (width - 1);
        slip_entry own = slip_no_entry();
        if (line < sort.lines && at < sort.length) {
            const bits_t given = source[slip_line(sort, line, 2) + at * sort.step[2]];
            own.key = KEY(given) ^ (sort_key_t)sort.flip;
            own.place = (uint32_t)at;
        }
        e[i] = own;
    }
    slip_network(e, width);
    for (int i = threadIdx.x; i < ENTRIES; i += THREADS) {
        const int64_t line = first + i / width;
        const int at = i & (width - 1);
        if (line >= sort.lines) continue;
        if (!sort.one) {
            if (at < sort.kept) slip_put(places, values, source, sort, line, at, e[i].place);
            continue;
        }
        if (at > 0) continue;
        int number = (int)sort.kept - 1;
        if (sort.nans && e[i + sort.length - 1].key == (sort_key_t)~(sort_key_t)0) {
            int low = 0, high = (int)sort.length - 1;
            while (low < high) {
                const int middle = (low + high) / 2;
                if (e[i + middle].key == (sort_key_t)~(sort_key_t)0) high = middle;
                else low = middle + 1;
            }
            number = low;
        }
        slip_put(places, values, source, sort, line, 0, e[i + number].place);
    }
}
"""
# The first `kept` of each part of BLOCK entries; of elements first, then of entries.
BEST = """
extern "C" __global__ void slip_sort_best(sort_key_t* to_keys, uint32_t* to_order,
                                          const sort_key_t* keys, const uint32_t* order,
                                          const bits_t* source, const slip_sort sort) {
    __shared__ slip_entry e[ENTRIES];
    const int64_t parts = sort.shift, line = blockIdx.x / parts, part = blockIdx.x % parts;
    const int64_t start = part * ENTRIES;
    for (int i = threadIdx.x; i < ENTRIES; i += THREADS) {
        slip_entry own = slip_no_entry();
        if (start + i < sort.row) {
#if FIRST
            const bits_t given = source[slip_line(sort, line, 2) + (start + i) * sort.step[2]];
            own.key = KEY(given) ^ (sort_key_t)sort.flip;
            own.place = (uint32_t)(start + i);
#else
            own.key = keys[line * sort.row + start + i];
            own.place = order[line * sort.row + start + i];
#endif
        }
        e[i] = own;
    }
    slip_network(e, ENTRIES);
    for (int i = threadIdx.x; i < sort.kept; i += THREADS) {
        to_keys[(int64_t)blockIdx.x * sort.kept + i] = e[i].key;
        to_order[(int64_t)blockIdx.x * sort.kept + i] = e[i].place;
    }
}
"""
KEYS = """
extern "C" __global__ void slip_sort_keys(sort_key_t* keys, uint32_t* order, const bits_t* source,
                                          const slip_sort sort) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= sort.lines * sort.length) return;
    const int64_t line = at / sort.length, place = at - line * sort.length;
    const bits_t given = source[slip_line(sort, line, 2) + place * sort.step[2]];
    keys[at] = KEY(given) ^ (sort_key_t)sort.flip;
    order[at] = (uint32_t)place;
}
"""
# counts[line][digit][tile]: how many keys of the tile have the digit.
COUNTS = """
extern "C" __global__ void slip_sort_counts(uint32_t* counts, const sort_key_t* keys,
                                            const slip_sort sort) {
    __shared__ uint32_t found[256];
    const int64_t line = blockIdx.x / sort.tiles, tile = blockIdx.x % sort.tiles;
    const int64_t base = line * sort.length, start = tile * TILE;
    found[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        if (start + i < sort.length) {
            const sort_key_t key = keys[base + start + i];
            atomicAdd(&found[(key >> sort.shift) & 255], 1u);
        }
    }
    __syncthreads();
    counts[(line * 256 + threadIdx.x) * sort.tiles + tile] = found[threadIdx.x];
}
"""
# The sum of all threads before; SUM: of all.
_BEFORE = """
SLIP_DEVICE uint32_t slip_threads_before(uint32_t own, uint32_t& total,
                                         uint32_t (&sums)[THREADS / 32]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    uint32_t before = sum - own;
    total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        before += w < warp ? sums[w] : 0;
        total += sums[w];
    }
    return before;
}
"""
# Each row of tiles, of one digit of one line, becomes the sums of those before; totals: the rows'.
ROWS = _BEFORE + """
extern "C" __global__ void slip_sort_rows(uint32_t* counts, uint32_t* totals,
                                          const slip_sort sort) {
    __shared__ uint32_t sums[THREADS / 32];
    const int64_t first = (int64_t)blockIdx.x * sort.tiles;
    uint32_t carry = 0;
    for (int64_t start = 0; start < sort.tiles; start += THREADS) {
        const int64_t at = start + threadIdx.x;
        uint32_t own = 0, total = 0;
        if (at < sort.tiles) own = counts[first + at];
        const uint32_t before = slip_threads_before(own, total, sums);
        if (at < sort.tiles) counts[first + at] = carry + before;
        carry += total;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}
"""
# A warp takes a run of the tile in rounds of 32 keys: those of one digit keep their order.
MOVE = _BEFORE + """
#define WARPS (THREADS / 32)
#define ROUNDS (TILE / THREADS)
extern "C" __global__ void slip_sort_move(sort_key_t* to_keys, uint32_t* to_order,
                                          const sort_key_t* keys, const uint32_t* order,
                                          const uint32_t* counts, const uint32_t* totals,
                                          const slip_sort sort) {
    __shared__ uint32_t taken[WARPS][256], begins[256], sums[THREADS / 32];
    const int64_t line = blockIdx.x / sort.tiles, tile = blockIdx.x % sort.tiles;
    const int64_t base = line * sort.length;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t start = tile * TILE + warp * (ROUNDS * 32) + lane;
    uint32_t total = 0;
    const uint32_t own = totals[line * 256 + threadIdx.x];
    const uint32_t before = slip_threads_before(own, total, sums);
    begins[threadIdx.x] = before + counts[(line * 256 + threadIdx.x) * sort.tiles + tile];
    for (int w = 0; w < WARPS; w++) taken[w][threadIdx.x] = 0;
    __syncthreads();
    sort_key_t key[ROUNDS];
    uint32_t rank[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const bool there = start + r * 32 < sort.length;
        key[r] = there ? keys[base + start + r * 32] : (sort_key_t)0;
        const unsigned digit = there ? (unsigned)((key[r] >> sort.shift) & 255) : 256u;
        unsigned peers = __ballot_sync(0xffffffffu, there);
        if (!there) peers = ~peers;
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const unsigned votes = __ballot_sync(0xffffffffu, (digit >> b) & 1u);
            peers &= (digit >> b) & 1u ? votes : ~votes;
        }
        uint32_t earlier = 0;
        if (there) earlier = taken[warp][digit];
        rank[r] = earlier + __popc(peers & ((1u << lane) - 1u));
        __syncwarp();
        // The first of the peers counts them.
        if (there && (peers & ((1u << lane) - 1u)) == 0)
            taken[warp][digit] = earlier + __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    uint32_t sum = begins[threadIdx.x];
    for (int w = 0; w < WARPS; w++) {
        const uint32_t mine = taken[w][threadIdx.x];
        taken[w][threadIdx.x] = sum;
        sum += mine;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        if (start + r * 32 < sort.length) {
            const int digit = (int)((key[r] >> sort.shift) & 255);
            const int64_t to = base + taken[warp][digit] + rank[r];
            to_keys[to] = key[r];
            to_order[to] = order[base + start + r * 32];
        }
    }
}
"""
# Stores what was asked for of lines of `row` entries in order.
PICK = """
extern "C" __global__ void slip_sort_pick(int64_t* places, bits_t* values, const bits_t* source,
                                          const sort_key_t* keys, const uint32_t* order,
                                          const slip_sort sort) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t each = sort.one ? 1 : sort.kept;
    if (at >= sort.lines * each) return;
    const int64_t line = at / each, first = line * sort.row;
    int64_t number = sort.one ? sort.kept - 1 : at - line * each;
    if (sort.nans) {
        if (keys[first + sort.row - 1] == (sort_key_t)~(sort_key_t)0) {
            int64_t low = 0, high = sort.row - 1;
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (keys[first + middle] == (sort_key_t)~(sort_key_t)0) high = middle;
                else low = middle + 1;
            }
            number = low;
        }
    }
    const uint32_t place = order[first + number];
    slip_put(places, values, source, sort, line, sort.one ? 0 : number, place);
}
"""
SEARCH = """
struct slip_walk {
    int64_t numel, slot, tag, size, step, sorter_step;
    int64_t shape[RANK], divider[RANK], strides[COUNT][RANK];
};
extern "C" __global__ void slip_search(result_t* out, const table_t* table,
                                       const value_t* values SORTER, const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.numel) return;
    place_t left = (place_t)at;
    int64_t to = 0, from = 0, row = 0, order = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        const int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
        to += c * walk.strides[0][d];
        from += c * walk.strides[1][d];
        row += c * walk.strides[2][d];
        order += c * walk.strides[COUNT - 1][d];
    }
    const value_t given = values[from];
    const wide_t value = VALUE(given);
    int64_t low = 0, high = walk.size;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        int64_t place = middle;
#if !SORTED
        place = sorter[order + middle * walk.sorter_step];
        if (place < 0 || place >= walk.size) {
            slip_index_error(walk.slot, walk.tag, at, place, walk.size);
            break;
        }
#endif
        const table_t other = table[row + place * walk.step];
        const wide_t found = TABLE(other);
        // nan is no bound: it is not above the value, nor the value's equal.
        if (RIGHT ? !(found > value) : !(found >= value)) low = middle + 1;
        else high = middle;
    }
    out[to] = (result_t)low;
}
"""
