/* Binding: cuts the domain of a program into groups and blocks.  Everything here follows from
   shapes, strides and the program, so the order of every reduction does too. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#define CHUNKED_BELOW 16   /* groups: with fewer, a long row is cut into chunks */
#define CHUNK_LEAST 32     /* blocks */
#define CHUNKS_MOST 64
#define WIDE_COLUMNS 4096  /* columns of a group where nothing is kept: memory is read in order */
#define KEPT_LIMIT 131072  /* elements that a columnar group keeps through its phases */
#define KEPT_LEAST 64      /* columns, though they then keep more */
#define SHORT_ROW 32       /* rows up to here are turned into columns if they have phases */
#define SHORT_KEPT 4096
#define TILE 32            /* rows and columns of a tile of a map that turns a matrix over */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t aligned(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }
static int64_t distance(int64_t stride) { return stride < 0 ? -stride : stride; }

slip_code *slip_new_code(const int32_t *counts) {
    const int64_t values = counts[0], operands = (int64_t)counts[1] + counts[4];
    const int64_t phases = counts[5];
    const int64_t sizes[] = {
        (int64_t)sizeof(slip_code), values * (int64_t)sizeof(slip_value),
        operands * (int64_t)sizeof(slip_operand), counts[6] * (int64_t)sizeof(slip_step),
        counts[7] * (int64_t)sizeof(slip_step), counts[8] * (int64_t)sizeof(slip_step),
        counts[9] * (int64_t)sizeof(slip_fold), (phases + 2) * (int64_t)sizeof(int32_t),
        (phases + 2) * (int64_t)sizeof(int32_t), (phases + 2) * (int64_t)sizeof(int32_t),
        (int64_t)counts[3] * SLIP_ITEM};
    char *part[11];
    int64_t total = 0;
    for (int i = 0; i < 11; i++) total += aligned(sizes[i]);
    part[0] = calloc(1, (size_t)total);
    if (!part[0]) return NULL;
    for (int i = 1; i < 11; i++) part[i] = part[i - 1] + aligned(sizes[i - 1]);
    slip_code *code = (slip_code *)part[0];
    code->values = counts[0];
    code->inputs = counts[1];
    code->numbers = counts[2];
    code->constants = counts[3];
    code->outputs = counts[4];
    code->operands = (int32_t)operands;
    code->phases = counts[5];
    code->uniforms = counts[6];
    code->reduces = counts[9];
    code->value = (slip_value *)part[1];
    code->operand = (slip_operand *)part[2];
    code->uniform = (slip_step *)part[3];
    code->row = (slip_step *)part[4];
    code->full = (slip_step *)part[5];
    code->fold = (slip_fold *)part[6];
    code->row_begin = (int32_t *)part[7];
    code->full_begin = (int32_t *)part[8];
    code->fold_begin = (int32_t *)part[9];
    code->constant = part[10];
    return code;
}

void slip_free_code(slip_code *code) { free(code); }

/* Dims that are being merged: sizes, and for each operand a row of strides. */
typedef struct { int rank, operands, pitch; int64_t *sizes, *strides; } dims;

static int64_t *stride_of(const dims *d, int operand, int dim) {
    return d->strides + (int64_t)operand * d->pitch + dim;
}

static void move_dim(dims *d, int target, int source) {
    d->sizes[target] = d->sizes[source];
    for (int k = 0; k < d->operands; k++) *stride_of(d, k, target) = *stride_of(d, k, source);
}

static void drop_ones(dims *d) {
    int rank = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->sizes[i] != 1) move_dim(d, rank++, i);
    }
    d->rank = rank;
}

/* Whether dim b should run outside dim a: the first operand that steps along both decides. */
static int outside(const dims *d, int a, int b) {
    for (int k = 0; k < d->operands; k++) {
        const int64_t s = distance(*stride_of(d, k, a)), t = distance(*stride_of(d, k, b));
        if (s && t && s != t) return t > s;
    }
    return 0;
}

static void swap_dims(dims *d, int a, int b) {
    const int64_t size = d->sizes[a];
    d->sizes[a] = d->sizes[b];
    d->sizes[b] = size;
    for (int k = 0; k < d->operands; k++) {
        const int64_t stride = *stride_of(d, k, a);
        *stride_of(d, k, a) = *stride_of(d, k, b);
        *stride_of(d, k, b) = stride;
    }
}

static void sort_dims(dims *d) {
    for (int i = 1; i < d->rank; i++) {
        for (int j = i; j > 0 && outside(d, j - 1, j); j--) swap_dims(d, j - 1, j);
    }
}

static int mergeable(const dims *d, int a, int b) {
    for (int k = 0; k < d->operands; k++) {
        if (*stride_of(d, k, a) != *stride_of(d, k, b) * d->sizes[b]) return 0;
    }
    return 1;
}

static void merge_dims(dims *d) {
    int last = 0;
    for (int i = 1; i < d->rank; i++) {
        if (mergeable(d, last, i)) {
            const int64_t size = d->sizes[last] * d->sizes[i];
            move_dim(d, last, i);
            d->sizes[last] = size;
        } else {
            move_dim(d, ++last, i);
        }
    }
    d->rank = d->rank ? last + 1 : 0;
}

static int64_t product(const dims *d) {
    int64_t n = 1;
    for (int i = 0; i < d->rank; i++) n *= d->sizes[i];
    return n;
}

static void pad(dims *d) {
    if (d->rank) return;
    d->rank = 1;
    d->sizes[0] = 1;
    for (int k = 0; k < d->operands; k++) *stride_of(d, k, 0) = 0;
}

/* Whether the contiguous dim is one that is kept, judged by the first full operand that moves. */
static int is_columnar(const slip_code *code, const dims *outer, const dims *inner) {
    for (int k = 0; k < code->operands; k++) {
        const int at = (k + code->outputs) % code->operands; /* inputs first */
        if (code->value[code->operand[at].value].level != SLIP_FULL) continue;
        int64_t nearest = INT64_MAX;
        for (int i = 0; i < inner->rank; i++) {
            const int64_t s = distance(*stride_of(inner, at, i));
            nearest = s ? smaller(nearest, s) : nearest;
        }
        const int64_t kept = distance(*stride_of(outer, at, outer->rank - 1));
        const int64_t run = outer->sizes[outer->rank - 1];
        if (nearest == INT64_MAX && kept == 0) continue;
        if (code->phases > 1 && product(inner) <= SHORT_ROW && run >= 4 * SHORT_ROW) return 1;
        return kept != 0 && kept < nearest && run >= 4;
    }
    return 0;
}

/* Equal pieces, a multiple of a vector long, of at most `limit` elements. */
static int64_t even_piece(int64_t n, int64_t limit) {
    const int64_t pieces = larger(1, ceiling(n, limit));
    return smaller(larger(n, 1), ceiling(ceiling(n, pieces), 16) * 16);
}

static void cut_rows(slip_layout *l) {
    const int64_t runs = l->run ? l->width / l->run : 0;
    l->group = 1;
    l->piece = l->run;
    l->repeat = larger(runs, 1);
    l->groups = l->rows;
    l->span = l->rows;
    l->blocks = l->width > 0;
    if (l->tiled) {
        l->span = l->outer[l->outer_rank - 1];
        l->group = smaller(l->span, TILE);
        l->piece = smaller(l->run, TILE);
        l->groups = l->rows / l->span * ceiling(l->span, l->group);
        l->blocks = ceiling(l->run, l->piece);
    } else if (l->width <= SLIP_BLOCK / 2) {
        l->group = larger(1, smaller(l->rows, SLIP_BLOCK / larger(l->width, 1)));
        l->groups = ceiling(l->rows, l->group);
    } else if (l->run >= SLIP_BLOCK / 2 || runs == 1) {
        l->piece = even_piece(l->run, SLIP_BLOCK);
        l->repeat = 1;
        l->blocks = runs * ceiling(l->run, l->piece);
    } else {
        l->repeat = smaller(runs, SLIP_BLOCK / l->run);
        l->blocks = ceiling(runs, l->repeat);
    }
    l->capacity = l->group * larger(l->piece, 1) * l->repeat;
}

static void cut_columns(const slip_code *code, slip_layout *l) {
    const int64_t width = larger(l->width, 1);
    const int64_t kept = larger(KEPT_LEAST, (width <= SHORT_ROW ? SHORT_KEPT : KEPT_LIMIT) / width);
    const int64_t limit = code->phases > 1 ? smaller(SLIP_BLOCK, kept) : WIDE_COLUMNS;
    l->group = l->piece = even_piece(l->run, limit);
    l->groups = l->run ? l->rows / l->run * ceiling(l->run, l->piece) : 0;
    l->repeat = larger(1, smaller(l->width, SLIP_BLOCK / l->group));
    l->blocks = ceiling(l->width, l->repeat);
    l->capacity = l->group * l->repeat;
}

static void cut_chunks(slip_layout *l) {
    l->chunk = larger(l->blocks, 1);
    l->chunks = 1;
    if (l->groups >= CHUNKED_BELOW || l->blocks < 2 * CHUNK_LEAST) return;
    l->chunk = larger(CHUNK_LEAST, ceiling(l->blocks, CHUNKS_MOST));
    l->chunks = ceiling(l->blocks, l->chunk);
}

/* Whether the dims follow each other without gaps; gives the elements that they span. */
static int dense(int rank, const int64_t *sizes, const int64_t *strides, int64_t *span) {
    for (int i = rank - 1; i >= 0; i--) {
        if (sizes[i] != 1 && strides[i] != *span) return 0;
        *span *= sizes[i];
    }
    return 1;
}

/* Whether every block of an operand lies in memory as the loops want it. */
static int is_direct(const slip_layout *l, const slip_place *p) {
    int64_t span = 1;
    if (l->tiled) return 0;
    if (l->columnar) {
        const int last = l->outer_rank - 1;
        if (!dense(1, l->outer + last, p->outer + last, &span)) return 0;
        return l->repeat == 1
            || (l->group == l->run && dense(l->inner_rank, l->inner, p->inner, &span));
    }
    if (l->repeat == 1 && l->group == 1) {
        const int last = l->inner_rank - 1;
        return dense(1, l->inner + last, p->inner + last, &span);
    }
    if (!dense(l->inner_rank, l->inner, p->inner, &span)) return 0;
    return l->group == 1 || dense(l->outer_rank, l->outer, p->outer, &span);
}

static void place_operands(const slip_code *code, slip_layout *l) {
    for (int k = 0; k < code->operands; k++) {
        const slip_operand *o = &code->operand[k];
        const slip_value *v = &code->value[o->value];
        const int allowed = o->natural && (k >= code->outputs || o->early);
        l->place[k].direct = allowed && v->level == SLIP_FULL && is_direct(l, &l->place[k]);
        l->touched += v->level == SLIP_FULL ? l->rows * l->width : l->rows;
    }
}

static void place_values(const slip_code *code, slip_layout *l) {
    int64_t *where = l->where, *expanded = l->where + code->values;
    l->slot_bytes = aligned(l->capacity * code->item);
    for (int k = 0; k < code->values; k++) {
        const slip_value *v = &code->value[k];
        where[k] = expanded[k] = -1;
        if (v->level == SLIP_UNIFORM) {
            where[k] = l->uniform_bytes;
            l->uniform_bytes += aligned(larger(l->capacity, l->group) * v->size);
        } else if (v->level == SLIP_ROW) {
            where[k] = l->row_bytes;
            l->row_bytes += aligned(l->group * v->size);
            if (!v->expanded) continue;
            expanded[k] = l->expanded_bytes;
            l->expanded_bytes += aligned(l->capacity * v->size);
        } else if (v->slot >= 0) {
            where[k] = l->slot_bytes * v->slot;
        }
    }
}

static void place_kept(const slip_code *code, slip_layout *l) {
    const int64_t span = l->columnar || l->group > 1 ? l->group * l->width : l->width;
    for (int k = 0; k < code->values; k++) {
        l->kept[k] = code->value[k].level == SLIP_FULL && code->value[k].slot < 0 ? 0 : -1;
    }
    for (int k = 0; k < code->operands; k++) {
        if (l->place[k].direct) l->kept[code->operand[k].value] = -1;
    }
    for (int k = 0; k < code->values; k++) {
        if (l->kept[k] < 0) continue;
        l->kept[k] = l->kept_bytes;
        l->kept_bytes += aligned(span * code->value[k].size);
    }
}

static int is_single(const slip_code *code, const slip_layout *l) {
    if (code->lined || l->groups != 1 || l->blocks != 1) return 0;
    for (int k = 0; k < code->operands; k++) {
        if (!l->place[k].direct) return 0;
    }
    return 1;
}

/* A map of one step on operands as they lie is one call of its loop. */
static void find_direct(const slip_code *code, slip_layout *l) {
    if (code->full_begin[code->phases] != 1 || code->reduces || code->outputs != 1) return;
    if (l->rows != 1 || l->inner_rank != 1 || l->columnar || code->uniforms) return;
    if (code->numbers || code->constants) return;
    for (int k = 0; k < code->operands; k++) {
        if (!l->place[k].direct) return;
    }
    const slip_step *step = &code->full[0];
    if (step->dst != code->operand[0].value) return;
    l->direct = step->loop;
    l->direct_a = step->a < 0 ? 0 : step->a + 1;
    l->direct_b = step->b < 0 ? 0 : step->b + 1;
    l->direct_c = step->c < 0 ? 0 : step->c + 1;
}

static slip_layout *allocate(const slip_code *code, int rank) {
    const int operands = code->operands;
    const int64_t words = (int64_t)(operands + 1) * (rank + 2) + 3 * (int64_t)code->values;
    const int64_t head = aligned(sizeof(slip_layout));
    const int64_t places = aligned(operands * (int64_t)sizeof(slip_place));
    char *memory = calloc(1, (size_t)(head + places + 8 * words));
    if (!memory) return NULL;
    slip_layout *l = (slip_layout *)memory;
    l->place = (slip_place *)(memory + head);
    int64_t *word = (int64_t *)(memory + head + places);
    l->where = word;
    l->kept = word + 2 * code->values;
    l->outer = word + 3 * code->values;
    return l;
}

/* A map that turns a matrix over reads some input along the wrong dim.  Gives the outer dim along
   which that input is nearest, or -1. */
static int crossed(const slip_code *code, const dims *outer, const dims *inner) {
    for (int k = code->outputs; k < code->operands; k++) {
        const int64_t along = distance(*stride_of(inner, k, 0));
        int best = -1;
        for (int i = 0; i < outer->rank; i++) {
            const int64_t s = distance(*stride_of(outer, k, i));
            if (s == 0 || s >= along || outer->sizes[i] < 4) continue;
            if (best < 0 || s < distance(*stride_of(outer, k, best))) best = i;
        }
        if (best >= 0) return best;
    }
    return -1;
}

/* Brings the dims into the order in which they run, merges them, and cuts off the inner ones. */
static void arrange(const slip_code *code, slip_layout *l, dims *outer, dims *inner) {
    const int map = !code->lined;
    if (map) {
        outer->rank += inner->rank;
        inner->rank = 0;
    }
    dims *both[2] = {outer, inner};
    for (int i = 0; i < 2; i++) {
        drop_ones(both[i]);
        if (i == 0 || !code->ordered) sort_dims(both[i]);
        merge_dims(both[i]);
    }
    if (map && outer->rank) {
        outer->rank--;
        inner->rank = 1;
        inner->sizes = outer->sizes + outer->rank;
        inner->strides = outer->strides + outer->rank;
        const int turned = inner->sizes[0] < 4 ? -1 : crossed(code, outer, inner);
        for (int i = turned; turned >= 0 && i < outer->rank - 1; i++) swap_dims(outer, i, i + 1);
        l->tiled = turned >= 0;
    }
    l->rows = product(outer);
    l->width = product(inner);
}

slip_layout *slip_bind(const slip_code *code, int outer_rank, int inner_rank, const int64_t *sizes,
                       const int64_t *strides) {
    const int rank = outer_rank + inner_rank, pitch = rank + 2, operands = code->operands;
    slip_layout *l = allocate(code, rank);
    if (!l) return NULL;
    /* One row of sizes, then a row of strides for each operand: outer dims, inner dims. */
    int64_t *rows = l->outer;
    for (int k = 0; k <= operands; k++) {
        const int64_t *from = k ? strides + (int64_t)(k - 1) * rank : sizes;
        if (rank) memcpy(rows + (int64_t)k * pitch, from, 8 * (size_t)rank);
    }
    dims outer = {outer_rank, operands, pitch, rows, rows + pitch};
    dims inner = {inner_rank, operands, pitch, rows + outer_rank, rows + pitch + outer_rank};
    l->counted = product(&inner);
    arrange(code, l, &outer, &inner);
    /* Room for a dim of size 1 where none is left: every row has two spare words at its end. */
    if (!outer.rank) {
        outer.sizes = rows + rank;
        outer.strides = rows + pitch + rank;
        pad(&outer);
    }
    if (!inner.rank) {
        inner.sizes = rows + rank + 1;
        inner.strides = rows + pitch + rank + 1;
        pad(&inner);
    }
    l->outer = outer.sizes;
    l->inner = inner.sizes;
    l->outer_rank = outer.rank;
    l->inner_rank = inner.rank;
    for (int k = 0; k < operands; k++) {
        l->place[k].outer = stride_of(&outer, k, 0);
        l->place[k].inner = stride_of(&inner, k, 0);
    }
    l->columnar = code->lined && l->width > 1 && is_columnar(code, &outer, &inner);
    l->run = l->columnar ? l->outer[l->outer_rank - 1] : l->inner[l->inner_rank - 1];
    if (l->columnar) cut_columns(code, l);
    else cut_rows(l);
    cut_chunks(l);
    place_operands(code, l);
    place_values(code, l);
    place_kept(code, l);
    l->state_bytes = aligned((int64_t)code->reduces * l->group * SLIP_STATE);
    l->slots_bytes = l->slot_bytes * code->slots;
    l->shared = aligned(16 * (int64_t)code->values) + l->uniform_bytes + l->row_bytes
        + l->expanded_bytes + l->kept_bytes + l->state_bytes * l->chunks;
    l->scratch = l->shared + l->slots_bytes;
    l->single = is_single(code, l);
    find_direct(code, l);
    return l;
}

void slip_unbind(slip_layout *layout) { free(layout); }
