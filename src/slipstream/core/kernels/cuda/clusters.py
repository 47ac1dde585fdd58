"""The CUDA C++ of rows that the blocks of a cluster share, each with a part on its own shelf.

The blocks of a cluster run at once and may write to each other's shared memory.  Their threads walk
along a row as those of one block would, and what they find is joined in the same order: how many
blocks share a row changes no bit.  Smaller blocks are several on a processor: while the threads of
one wait for each other, another one has memory busy.
"""

from __future__ import annotations

CLUSTERS = r"""
// Which block of its cluster this one is; where all threads of the cluster wait for each other.
#ifndef SLIP_SIMULATED
#if __CUDA_ARCH__ < 900
// Such a card has no clusters and is given no such kernel; the text is still one for it.
#undef __cluster_dims__
#define __cluster_dims__(...)
#endif
SLIP_DEVICE int slip_rank() {
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return (int)rank;
}
SLIP_DEVICE void slip_meet() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
                 ::: "memory");
#endif
}
// An array in the shared memory of another block of the cluster.
template <int N, class T> SLIP_DEVICE T* slip_shared_of(T* mine, int rank) {
    unsigned long long place = (unsigned long long)mine;
#if __CUDA_ARCH__ >= 900
    asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"((unsigned long long)mine), "r"(rank));
#endif
    return reinterpret_cast<T*>(place);
}
#define SLIP_COPIES(blocks) 1
#define SLIP_OWN(array, N) (array)
#else
// Here an array of a block is one of the whole cluster, with a part for each block.
SLIP_DEVICE int slip_rank() { return (int)slip_block_rank(); }
SLIP_DEVICE void slip_meet() { slip_cluster_meet(); }
template <int N, class T> SLIP_DEVICE T* slip_shared_of(T* first, int rank) {
    return first + rank * N;
}
#define SLIP_COPIES(blocks) (blocks)
#define SLIP_OWN(array, N) ((array) + slip_rank() * (N))
#endif
// Over the `lanes` threads of a row in BLOCKS blocks, of at most WARPS warps in all: as over those
// of one block.  Every warp leaves what it found with every block.  `turn` is another one from row
// to row, 0 or 1: who is ahead must not write where others still read.
template <class F, int WARPS, int BLOCKS>
SLIP_DEVICE typename F::type slip_fold_cluster(typename F::type x, int lane, int lanes, int turn) {
    __shared__ typename F::type shared[SLIP_COPIES(BLOCKS) * 2 * WARPS];
    x = slip_fold_warp<F>(x, 32);
    const int place = turn * WARPS, to = lane % 32;
    if (to < BLOCKS) slip_shared_of<2 * WARPS>(shared, to)[place + lane / 32] = x;
    slip_meet();
    const int mine = lane % WARPS;
    x = mine < lanes / 32 ? SLIP_OWN(shared, 2 * WARPS)[place + mine] : F::identity();
    return slip_fold_warp<F>(x, WARPS);
}
"""
