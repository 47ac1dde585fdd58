# cython: annotation_typing=False
"""Walks on the device: the positions of a shape, operands with strides, indices that move one side.

The geometry is what the CPU's kernels of the same call hold (`kernels.cpu.gathering`); here it
becomes the tail of a launch.  One thread a position.
"""

from __future__ import annotations

from math import prod
from typing import Any

from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cuda import elements
from slipstream.core.launch.cuda.launches import KernelCode, Launch, make_launch
from slipstream.core.shapes.collapse import collapse
from slipstream.core.vocab.records import TensorBase

Ints = tuple[int, ...]
THREADS = 256
# Positions up to which index arithmetic is done in 32 bits.
NARROW = 1 << 30


def described(plan: Any, call: Any) -> Any:
    """The CPU's kernel of the same call: it holds the geometry, and nothing of it is run."""
    return call.op.kernels["cpu"][-1].make(plan, call)


def address(tensor: TensorBase) -> int:
    """Where the tensor's first element lies."""
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize


def blocks(count: int, each: int = THREADS) -> int:
    """How many blocks of so many threads or elements there must be."""
    return -(-count // each)


def divider(size: int) -> int:
    """The word by which `slip_take` divides numbers below 2**31."""
    shift = (max(size, 1) - 1).bit_length()
    return shift << 32 | ((1 << 32) * ((1 << shift) - size) // max(size, 1) + 1) & 0xFFFFFFFF


def place_type(count: int) -> str:
    """The line that names the type of positions."""
    return f"typedef {'uint32_t' if count < NARROW else 'int64_t'} place_t;\n"


def merged(shape: Ints, operands: list[Ints], sort: bool = False) -> tuple[Ints, list[Ints]]:
    """The fewest dims, at least one."""
    sizes, strides = collapse(shape, operands, sort)
    if not sizes:
        return (1,), [(0,)] * len(operands)
    return sizes, list(strides)


def launch(code: KernelCode, device: Any, count: int, tail: list[int], **more: Any) -> Launch:
    """A launch of one thread for each of ``count`` elements."""
    return make_launch(code, device, blocks(count), THREADS, tail=tail, **more)


def index_types(indices: tuple[IndexOperand, ...]) -> list[str]:
    """The C types of index tensors."""
    return [f"int{8 * index.itemsize}_t" for index in indices]


# Every kernel of one thread a position begins so.
POSITION = """
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.numel) return;
"""

# -- reading: out[position] = source[position moved by the indices] --

_READ = """
struct slip_index { int64_t step, size, wraps, strides[RANK]; };
struct slip_walk {
    int64_t numel, slot, tag, last, whole;
    int64_t shape[RANK], divider[RANK], target[RANK], source[RANK];
    slip_index indices[COUNT];
};
extern "C" __global__ void slip_read(item_t* out, const item_t* source PARAMETERS,
                                     const slip_walk walk) {
""" + POSITION + """
    place_t left = (place_t)at;
    int64_t to = 0, from = 0, shift = 0, first = 0, place[COUNT] = {};
    bool good = true;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
        if (d == RANK - 1) first = c *= EACH;
        to += c * walk.target[d];
        from += c * walk.source[d];
#pragma unroll
        for (int k = 0; k < COUNT; k++) place[k] += c * walk.indices[k].strides[d];
    }
LOOKUPS
#if EACH > 1
    // Several neighbours at once, in one access where all of them lie so.
    const int64_t rest = walk.last - first;
    slip_vector<item_t, EACH> items = {};
    const bool fits = walk.whole && slip_aligned<item_t>(out, 16)
                      && slip_aligned<item_t>(source, 16);
    if (good) items = slip_read<item_t, EACH>(source + (from + shift), rest, fits);
    slip_write<item_t, EACH>(out + to, items, rest, fits);
#else
    item_t item = {};
    if (good) item = source[from + shift];
    out[to] = item;
#endif
}
"""
# The first bad index of a lane is reported; the lane then yields 0.
_LOOKUP = """
    {{
        const int64_t given = i{0}[place[{0}]], size = walk.indices[{0}].size;
        const int64_t found = walk.indices[{0}].wraps && given < 0 ? given + size : given;
        if (good && (found < 0 || found >= size)) {{
            slip_index_error(walk.slot, walk.tag, place[{0}], given, size);
            good = false;
        }}
        shift += found * walk.indices[{0}].step;
    }}"""


def read_code(item: str, rank: int, types: list[str], count: int, each: int) -> KernelCode:
    """The kernel that reads by index tensors of some types; without any it copies."""
    parameters = "".join(f", const {kind}* i{k}" for k, kind in enumerate(types))
    lookups = "".join(_LOOKUP.format(k) for k in range(len(types)))
    text = _READ.replace(" PARAMETERS", parameters).replace("LOOKUPS", lookups)
    head = (f"{place_type(count)}#define RANK {rank}\n#define COUNT {max(len(types), 1)}\n"
            f"#define EACH {each}\n")
    return KernelCode("slip_read", item + head + text)


def together(itemsize: int, shape: Ints, strides: list[Ints]) -> int:
    """How many neighbours a thread takes: 16 bytes where they lie so in both sides."""
    target, source, *indices = [walk[-1] for walk in strides]
    each = 16 // itemsize
    fits = target == 1 and source == 1 and not any(indices) and shape[-1] >= each
    return each if fits else 1


def read_launch(plan: Any, binding: Any) -> Launch | None:
    """The launch of a binding of kind ``read``; operands: out, source, index tensors."""
    if not binding.numel:
        return None
    operands = [binding.target_strides, binding.source_strides]
    operands += [index.strides for index in binding.indices]
    # Only a copy may visit its elements in another order.
    shape, strides = merged(binding.shape, operands, not binding.indices)
    each = together(binding.dtype.itemsize, shape, strides)
    steps = [step for walk in strides[:2] for step in walk[:-1]]
    steps += [shape[-1], *[index.step for index in binding.indices]]
    whole = all(step % each == 0 for step in steps)
    last = shape[-1]
    shape = (*shape[:-1], blocks(last, each))
    code = read_code(elements.moved(binding.dtype.itemsize), len(shape),
                     index_types(binding.indices), binding.numel, each)
    tail = [prod(shape), plan.backend.error_slot(), code.mark, last, int(whole), *shape,
            *map(divider, shape), *strides[0], *strides[1]]
    for index, walk in zip(binding.indices, strides[2:], strict=True):
        tail += [index.step, index.size, int(index.wraps), *walk]
    if not binding.indices:
        tail += [0] * (3 + len(shape))
    return launch(code, plan.out_spec.device, prod(shape), tail)
