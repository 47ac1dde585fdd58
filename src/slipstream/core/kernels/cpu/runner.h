/* The C side of the CPU's machine: the tables of loops, a program laid out for running (slip_code),
   and a program bound to shapes and strides (slip_layout).

   A program runs instruction by instruction over blocks that stay in the first-level cache.  Its
   domain is cut into groups, each cut into blocks:
   - by rows: a group is one row of the inner dims, or several short ones; blocks are pieces of it;
   - by columns, where the contiguous dim is one that is kept: a group is a run of neighbouring
     outer positions, and blocks are runs of steps along the inner dims.
   A map has its last dim taken for inner; one that turns a matrix over is cut into square tiles,
   pieces of several rows.  All of this follows from shapes and strides alone. */
#ifndef SLIP_RUNNER_H
#define SLIP_RUNNER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SLIP_BLOCK 1024    /* elements of a block */
#define SLIP_ITEM 16       /* bytes of the largest class */
#define SLIP_STATE 32      /* bytes of a reduction's state for each column */
#define SLIP_SECOND(state, columns) ((void *)((char *)(state) + (columns) * (SLIP_STATE / 2)))

/* ---- tables ---- */

typedef void (*slip_loop)(int64_t n, void *dst, const void *a, const void *b, const void *c);
typedef void (*slip_load)(int64_t n, void *dst, const void *src, int64_t stride);
typedef void (*slip_store)(int64_t n, void *dst, int64_t stride, const void *src);

typedef struct { const char *name; slip_loop loop; } slip_loop_entry;
typedef struct { const char *name; slip_load loop; } slip_load_entry;
typedef struct { const char *name; slip_store loop; } slip_store_entry;

typedef struct {
    const char *name;
    void (*begin)(int64_t columns, void *state);
    void (*rows)(int64_t rows, int64_t width, int64_t columns, void *state, const void *a,
                 int64_t base);
    void (*columns)(int64_t steps, int64_t columns, void *state, const void *a, int64_t base);
    void (*merge)(int64_t columns, void *state, const void *other);
    void (*finish)(int64_t columns, void *dst, const void *state);
} slip_reduction;

typedef struct {
    const slip_loop_entry *loops;
    const slip_load_entry *loads;
    const slip_store_entry *stores;
    const slip_reduction *reductions;
} slip_table;

/* The loops for the best instruction set that this processor has. */
const slip_table *slip_loops(void);

/* ---- programs ---- */

enum { SLIP_UNIFORM, SLIP_ROW, SLIP_FULL }; /* levels; uniform: the same in the whole domain */

typedef struct {
    int32_t level;
    int32_t size;       /* bytes of an element of its class */
    int32_t first;      /* phase in which a full value is made, or a row value is there */
    int32_t last;       /* last phase in which a full value is used */
    int32_t slot;       /* block buffer of a full value (-1: it is used in several phases) */
    int32_t expanded;   /* whether full steps use a row value */
} slip_value;

typedef struct { slip_loop loop; int32_t dst, a, b, c; } slip_step;

typedef struct {
    int32_t value;
    int32_t itemsize;   /* bytes of a stored element */
    int32_t natural;    /* stored as the class computes it */
    int32_t early;      /* output: may be written where the step makes it */
    slip_load load;     /* inputs */
    slip_store store;   /* outputs */
} slip_operand;

typedef struct { const slip_reduction *loops; int32_t source, dst; } slip_fold;

/* Values are numbered inputs, numbers, constants, steps; operands outputs, then inputs.  Each of
   the lists of steps and folds is cut by phase: those of phase p begin at its begin[p]. */
typedef struct {
    int32_t values, inputs, numbers, constants, outputs, operands, phases, reduces, slots, item;
    int32_t count;      /* value number of the primitive count, or -1 */
    int32_t lined;      /* has values or outputs of row level */
    int32_t ordered;    /* the order of the inner dims shows in a result */
    slip_value *value;
    slip_operand *operand;
    slip_step *uniform, *row, *full;
    slip_fold *fold;
    int32_t uniforms, *row_begin, *full_begin, *fold_begin;
    char *constant;     /* SLIP_ITEM bytes each */
} slip_code;

/* An empty program; counts: values, inputs, numbers, constants, outputs, phases, uniform steps, row
   steps, full steps, folds.  Returns NULL without memory. */
slip_code *slip_new_code(const int32_t *counts);
void slip_free_code(slip_code *code);

/* ---- bound programs ---- */

typedef struct {
    int64_t *outer, *inner;   /* strides in elements */
    int32_t direct;           /* used in place */
} slip_place;

typedef struct {
    int64_t rows, width;                  /* elements of the outer and of the inner dims */
    int32_t outer_rank, inner_rank, columnar, tiled;
    int64_t *outer, *inner;               /* sizes; at least one dim each */
    int64_t run;                          /* size of the last inner (columnar: outer) dim */
    int64_t piece;                        /* elements of a run in one block */
    int64_t group, groups;                /* rows (columnar: columns) of a group; groups */
    int64_t span;                         /* rows that no group reaches across */
    int64_t repeat;                       /* runs of a row (columnar: steps) in one block */
    int64_t blocks, chunk, chunks;        /* blocks of a group; blocks of a chunk; chunks */
    int64_t capacity;                     /* elements of a block buffer */
    int64_t uniform_bytes, row_bytes, expanded_bytes, kept_bytes, state_bytes;
    int64_t slot_bytes, slots_bytes;
    int64_t shared, scratch;              /* bytes: of all but the slots; of everything */
    int64_t counted;                      /* elements of the inner dims as they were bound */
    int64_t *where;                       /* place of each value in its region; then expanded */
    int64_t *kept;                        /* place among values kept through phases, -1: none */
    int32_t single;                       /* a map of one block, all operands used in place */
    slip_loop direct;                     /* the program is this loop on its operands */
    int32_t direct_a, direct_b, direct_c; /* operands */
    int64_t touched;                      /* elements that a run reads or writes */
    slip_place *place;                    /* for each operand */
} slip_layout;

/* Sizes are those of the outer, then the inner dims; strides are one row for each operand.
   Returns NULL without memory. */
slip_layout *slip_bind(const slip_code *code, int outer_rank, int inner_rank, const int64_t *sizes,
                       const int64_t *strides);
void slip_unbind(slip_layout *layout);

/* Runs a program; numbers holds SLIP_ITEM bytes for each.  Returns 0, or -1 without memory. */
int slip_run(const slip_code *code, const slip_layout *layout, const size_t *addresses,
             const void *numbers, int threads);

/* Runs a program that is one loop, if it is; tells whether it was. */
static inline int slip_run_direct(const slip_layout *l, const size_t *addresses) {
    if (!l->direct) return 0;
    l->direct(l->width, (void *)addresses[0], (const void *)addresses[l->direct_a],
              (const void *)addresses[l->direct_b], (const void *)addresses[l->direct_c]);
    return 1;
}

/* A Python number in its class: what run takes. */
static inline void slip_put_bool(char *place, int value) { *place = value != 0; }
static inline void slip_put_int(char *place, unsigned long long value) {
    const int64_t word = (int64_t)value;
    memcpy(place, &word, sizeof word);
}
/* kind: place of the class among b1, i64, f32, f64, c64, c128. */
static inline void slip_put_float(char *place, int kind, double re, double im) {
    const float narrow[2] = {(float)re, (float)im};
    const double wide[2] = {re, im};
    if (kind & 1) memcpy(place, wide, kind == 5 ? 16 : 8);
    else memcpy(place, narrow, kind == 4 ? 8 : 4);
}

/* ---- workers ---- */

typedef void (*slip_task)(void *context, int64_t index);

/* Calls task for 0 .. tasks - 1 on up to `threads` threads, this one among them. */
void slip_parallel(slip_task task, void *context, int64_t tasks, int threads);
/* How many threads have been started in this process. */
int slip_started(void);

#endif
