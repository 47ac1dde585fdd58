/* What the engine and the kernels built for the host agree on.  C and C++ both read it. */
#ifndef SLIP_ABI_H
#define SLIP_ABI_H

#define SLIP_WARP 32
#define SLIP_PAGE 4096
/* Most blocks of a cluster. */
#define SLIP_CLUSTER 8

/* Kinds of access, as bits of the marks that a kernel leaves for each byte it touches. */
#define SLIP_READ 1
#define SLIP_WRITE 2
#define SLIP_ATOMIC 4

/* What can go wrong; `driver faults` in Python reads the numbers. */
#define SLIP_OUTSIDE 1    /* next to a block */
#define SLIP_NOWHERE 2    /* in no live block */
#define SLIP_MISALIGNED 3
#define SLIP_TRAP 4
#define SLIP_DEADLOCK 5
#define SLIP_RACE 6
#define SLIP_UNMAPPED 7
#define SLIP_CRASH 8      /* the host's processor refused */

/* Operations of a warp, or of a block, that need several threads at one place. */
#define SLIP_SHUFFLE 0
#define SLIP_BALLOT 1
#define SLIP_MATCH 2
#define SLIP_ADD 3
#define SLIP_MIN 4
#define SLIP_MAX 5
#define SLIP_SIGNED_MIN 6
#define SLIP_SIGNED_MAX 7
#define SLIP_AND 8
#define SLIP_OR 9
#define SLIP_XOR 10

typedef struct slip_triple {
    unsigned x, y, z;
} slip_triple;

/* A run of bytes that a kernel may touch; `touch` has a mark for each byte, or is null, and `pages`
   one for each page that has marks. */
typedef struct slip_block {
    char *start;
    unsigned long long size;
    unsigned char *touch, *pages;
    unsigned long long first;    /* of its bytes among those that `pages` stands for */
    unsigned long long identity; /* which block it is among all ever handed out, 0: none */
} slip_block;

typedef struct slip_parameter {
    unsigned offset, size, kind; /* kind: 0 a value, 1 a pointer to const, 2 a pointer */
} slip_parameter;

typedef struct slip_context slip_context;

struct slip_context {
    slip_triple thread, block, block_dim, grid_dim;
    const unsigned char *parameters;
    unsigned shared_size;
    unsigned rank; /* of the block in its cluster */
    int (*next)(slip_context *);
    int (*barrier)(slip_context *, int predicate);
    void (*meet)(slip_context *); /* the barrier of a cluster */
    unsigned long long (*together)(slip_context *, unsigned mask, int what,
                                   unsigned long long value, int source);
    const slip_block *(*find)(slip_context *, unsigned long long address);
    void *(*refuse)(slip_context *, const slip_block *, const void *at, unsigned nbytes,
                    int access);
    void (*trap)(slip_context *, const char *text);
    void (*bad_index)(slip_context *, const char *file, unsigned line, const char *type,
                      long long index);
    long long ticks;
    slip_block shared; /* the dynamic shared memory of the launch */
};

typedef struct slip_kernel {
    const char *name;
    void (*run)(slip_context *);
    const slip_parameter *parameters;
    unsigned count, nbytes; /* of the parameters */
    unsigned max_threads;
    unsigned local;
    unsigned cluster; /* how many blocks along x run together */
} slip_kernel;

/* What a built source holds; its function `slip_image` fills this in. */
typedef struct slip_image {
    const slip_kernel *kernels;
    unsigned count;
    char *shared_start, *shared_end; /* the static shared arrays */
    unsigned char *dynamic_shared;
} slip_image;

#endif
