"""Sequences of different lengths: padded to one tensor, or packed time step after time step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import slipstream as ss

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
           "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence"]


class _Packed(NamedTuple):
    data: ss.Tensor
    batch_sizes: ss.Tensor
    sorted_indices: ss.Tensor | None
    unsorted_indices: ss.Tensor | None


class PackedSequence(_Packed):
    """Sequences sorted by length: of each time step the rows of those that still go on.

    data: (sum of lengths, ...); batch_sizes: int64 on the CPU, how many rows each step has;
    sorted_indices, unsorted_indices: the order of the sequences and its inverse, or None.
    """

    __slots__ = ()

    def __new__(cls, data: ss.Tensor, batch_sizes: ss.Tensor | None = None,
                sorted_indices: ss.Tensor | None = None,
                unsorted_indices: ss.Tensor | None = None) -> PackedSequence:
        """Check the parts; the inverse order is made where only the order is given.

        ValueError for batch sizes that are not on the CPU.
        """
        if batch_sizes is None:
            raise TypeError("PackedSequence() needs batch_sizes beside data; pack_padded_sequence "
                            "makes both")
        if not batch_sizes.is_cpu:
            raise ValueError(f"batch_sizes should always be on CPU. Instead got it on "
                             f"{batch_sizes.device}")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _mapped(self, change: Callable[[ss.Tensor], ss.Tensor]) -> PackedSequence:
        orders = [None if each is None else each.to(change(self.data).device) for each in self[2:]]
        return type(self)(change(self.data), self.batch_sizes, *orders)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data in another dtype or on another device, with the orders there."""
        return self._mapped(lambda data: data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """The same on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """The same on a CUDA device."""
        return self.to("cuda" if device is None else device)

    def double(self) -> PackedSequence:
        """The data in float64."""
        return self.to(ss.float64)

    def float(self) -> PackedSequence:
        """The data in float32."""
        return self.to(ss.float32)

    def half(self) -> PackedSequence:
        """The data in float16."""
        return self.to(ss.float16)

    @property
    def is_cuda(self) -> bool:
        """Whether the data lies on a CUDA device."""
        return self.data.is_cuda


def invert_permutation(permutation: ss.Tensor | None) -> ss.Tensor | None:
    """The order that undoes another; None stays None."""
    if permutation is None:
        return None
    places = ss.arange(permutation.numel(), device=permutation.device, dtype=permutation.dtype)
    return ss.empty_like(permutation).scatter_(0, permutation, places)


def _checked_lengths(lengths: Any, batch: int, longest: int) -> ss.Tensor:
    """The lengths as int64 on the CPU; RuntimeError where they do not fit the input."""
    found = lengths if isinstance(lengths, ss.Tensor) else ss.as_tensor(lengths, device="cpu")
    if not found.is_cpu:
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got "
                           f"{found.ndim}D {found.device} {found.dtype.name} tensor")
    found = found.to(ss.int64)
    if found.ndim != 1 or found.numel() != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got "
                           f"{list(found.shape)} (batch_size={batch})")
    if batch == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if found.min().item() <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element "
                           "in 'lengths' that is <= 0")
    if found.max().item() > longest:
        raise RuntimeError(f"a length of {found.max().item()} is more than the input's "
                           f"{longest} time steps")
    return found


def _places(lengths: ss.Tensor, longest: int) -> tuple[ss.Tensor, ss.Tensor]:
    """How many sequences reach each step, and where their rows lie among (steps * batch)."""
    reaches = ss.arange(longest, device=lengths.device).unsqueeze(1) < lengths
    return reaches.sum(1), reaches.reshape(-1).nonzero().squeeze(1)


def pack_padded_sequence(input: ss.Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Pack (T, N, ...), or (N, T, ...) with ``batch_first``, without the padding.

    ``lengths``: N positive integers on the host, falling where ``enforce_sorted``; else the
    sequences are sorted here.  RuntimeError where they do not fit.
    """
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    counts = _checked_lengths(lengths, batch, steps)
    order = None
    if enforce_sorted:
        if (counts[1:] > counts[:-1]).any():
            raise RuntimeError("`lengths` array must be sorted in decreasing order when "
                               "`enforce_sorted` is True. You can pass `enforce_sorted=False` to "
                               "pack_padded_sequence and/or pack_sequence to sidestep this "
                               "requirement if you do not need ONNX exportability.")
    else:
        counts, places = counts.sort(descending=True, stable=True)
        order = places.to(input.device)
        input = input.index_select(1, order)
    sizes, rows = _places(counts, int(counts[0]))
    flat = input.reshape(steps * batch, *input.shape[2:])
    return PackedSequence(flat.index_select(0, rows.to(flat.device)), sizes, order)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[ss.Tensor, ss.Tensor]:
    """Undo the packing: (T, N, ...), or (N, T, ...), and the lengths, in the order before packing.

    ``total_length``: pad to so many steps; ValueError where the longest has more.
    """
    data, sizes, _, unsorted = sequence
    steps, batch = sizes.numel(), int(sizes[0])
    if total_length is not None and total_length < steps:
        raise ValueError("Expected total_length to be at least the length of the longest sequence "
                         f"in input, but got total_length={total_length} and max sequence length "
                         f"being {steps}")
    lengths = (sizes.unsqueeze(1) > ss.arange(batch, device=sizes.device)).sum(0)
    rows = _places(lengths, steps)[1].to(data.device)
    whole = data.new_full(((total_length or steps) * batch, *data.shape[1:]), padding_value)
    padded = whole.index_copy(0, rows, data).reshape(-1, batch, *data.shape[1:])
    if unsorted is not None:
        padded = padded.index_select(1, unsorted)
        lengths = lengths[unsorted.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> ss.Tensor:
    """Sequences (L, ...) of different lengths as one (T, N, ...), or (N, T, ...).

    RuntimeError where there is none, or where other dims differ.
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side should be either right or left, but got {padding_side}")
    parts = list(sequences.unbind(0) if isinstance(sequences, ss.Tensor) else sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    longest = max(len(part) for part in parts)
    padded = []
    for part in parts:
        if part.shape[1:] != parts[0].shape[1:]:
            raise RuntimeError("the sequences' other dims have to be the same, but got "
                               f"{list(part.shape)} beside {list(parts[0].shape)}")
        fill = part.new_full((longest - len(part), *part.shape[1:]), padding_value)
        padded.append(ss.cat([part, fill] if padding_side == "right" else [fill, part]))
    return ss.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: ss.Tensor, lengths: ss.Tensor,
                   batch_first: bool = False) -> list[ss.Tensor]:
    """The sequences of a padded tensor, each as long as ``lengths`` says."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[ss.Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L, ...)."""
    lengths = ss.tensor([len(each) for each in sequences], device="cpu")
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[ss.Tensor]:
    """The sequences again, in their order before packing."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
