"""The loss of sequences without alignment (CTC)."""

from __future__ import annotations

import math
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.nn.functions.losses import reduction_of

# Stands for the logarithm of zero: sums of it stay finite, and so do slopes.
NOTHING = -1e30


def _check_range(log_probs: ss.Tensor) -> None:
    """Raise RuntimeError for a dtype that cannot hold the logarithm that stands for zero."""
    dtype = log_probs.dtype
    if not dtype.is_floating_point or ss.finfo(dtype).min > NOTHING:
        raise RuntimeError(f"ctc_loss takes log_probs of float32, float64 or bfloat16, not {dtype}"
                           "\n  mend: log_probs.float()")


def _check_lengths(targets: ss.Tensor, lengths: tuple[Any, Any], steps: int, batch: int) -> None:
    """Raise RuntimeError for lengths that there is no room for."""
    for name, given in zip(("input_lengths", "target_lengths"), lengths, strict=True):
        if given.is_floating_point() or given.dtype is ss.bool:
            raise RuntimeError(f"{name} must be integral")
        if given.numel() != batch:
            raise RuntimeError(f"{name} must be of size batch_size")
    # Another device is not waited for.
    if any(given.device.type != "cpu" for given in lengths):
        return
    inputs, wanted = [given.reshape(-1).tolist() for given in lengths]
    for name, values in (("input_lengths", inputs), ("target_lengths", wanted)):
        if min(values, default=0) < 0:
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value "
                               f"{min(values)}")
    if max(inputs, default=0) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value "
                           f"{max(inputs)}")
    if targets.ndim == 1 and targets.shape[0] != sum(wanted):
        raise RuntimeError(f"Expected targets to have size {sum(wanted)} at dimension 0, the sum "
                           f"of target_lengths, but got size {targets.shape[0]}")
    if targets.ndim == 2 and targets.shape[0] != batch:
        raise RuntimeError(f"Expected targets to have size {batch} at dimension 0, but got size "
                           f"{targets.shape[0]}")
    if targets.ndim == 2 and targets.shape[1] < max(wanted, default=0):
        raise RuntimeError(f"Expected targets to have size at least {max(wanted)} at dimension 1, "
                           f"but got size {targets.shape[1]}")


def _lengths(value: Any) -> ss.Tensor:
    return value if isinstance(value, ss.Tensor) else ss.tensor(list(value), dtype=ss.int64)


def _labels(targets: ss.Tensor, lengths: ss.Tensor, blank: int) -> ss.Tensor:
    """Each target between blanks, (N, 2 S + 1), filled up with blanks."""
    if targets.ndim == 1:
        rows = []
        first = 0
        longest = max([*lengths.tolist(), 0])
        for length in lengths.tolist():
            row = targets[first:first + length]
            rows.append(ss.cat([row, row.new_full((longest - length,), blank)]))
            first += length
        targets = ss.stack(rows)
    batch, longest = targets.shape
    spread = targets.new_full((batch, 2 * longest + 1), blank)
    spread[:, 1::2] = targets
    # What lies beyond a target's length is never looked at, but has to be a class.
    inside = ss.arange(2 * longest + 1, device=targets.device) < 2 * lengths.unsqueeze(1) + 1
    return ss.where(inside, spread, ss.full_like(spread, blank)).to(ss.int64)


def _sum_of(parts: list[ss.Tensor]) -> ss.Tensor:
    return ss.logsumexp(ss.stack(parts), 0)


def _moved(alpha: ss.Tensor, places: int) -> ss.Tensor:
    """The logarithms moved on, nothing in the first places."""
    head = alpha.new_full((alpha.shape[0], places), NOTHING)
    return ss.cat([head, alpha[:, :-places]], 1)


def _likelihood(log_probs: ss.Tensor, labels: ss.Tensor, input_lengths: ss.Tensor,
                target_lengths: ss.Tensor, blank: int) -> ss.Tensor:
    """log p(target) of each sequence, by the forward recursion over time."""
    steps, batch = log_probs.shape[:2]
    width = labels.shape[1]
    chances = log_probs.gather(2, labels.unsqueeze(0).expand(steps, batch, width))
    places = ss.arange(width, device=labels.device)
    # A label may follow its last but one neighbour if that is neither blank nor the same.
    skips = (places > 1) & (labels != blank) & (labels != ss.cat(
        [labels[:, :2], labels[:, :-2]], 1)[:, :width])
    alpha = ss.where(places < 2, chances[0], ss.full_like(chances[0], NOTHING))
    nothing = ss.full_like(alpha, NOTHING)
    for step in range(1, steps):
        parts = [alpha, _moved(alpha, 1)]
        if width > 2:
            parts.append(ss.where(skips, _moved(alpha, 2), nothing))
        ahead = _sum_of(parts).clamp(min=NOTHING) + chances[step]
        alpha = ss.where((step < input_lengths).unsqueeze(1), ahead, alpha)
    last = (2 * target_lengths).unsqueeze(1)
    before = (last - 1).clamp(min=0)
    final = alpha.gather(1, last)
    label = ss.where(last > 0, alpha.gather(1, before), ss.full_like(final, NOTHING))
    found = _sum_of([final.squeeze(1), label.squeeze(1)])
    # Of no steps there is one alignment, that of no labels.
    unseen = ss.where(target_lengths > 0, ss.full_like(found, NOTHING), ss.zeros_like(found))
    return ss.where(input_lengths > 0, found, unseen)


def _normalizer(log_probs: ss.Tensor, input_lengths: ss.Tensor) -> ss.Tensor:
    """Zero, with the slope e^x: PyTorch's gradient takes the probabilities to be normalised.

    Where log_softmax made them it adds nothing.
    """
    shares = log_probs.exp().sum(2)
    steps = ss.arange(log_probs.shape[0], device=log_probs.device).unsqueeze(1)
    return ((shares - shares.detach()) * (steps < input_lengths)).sum(0)


@autocast_as(cpu="float32", cuda="asleep")
def ctc_loss(log_probs: ss.Tensor, targets: ss.Tensor, input_lengths: Any, target_lengths: Any,
             blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> ss.Tensor:
    """Minus the log-likelihood of targets (N, S), or one after another, under (T, N, C).

    Summed over all alignments with blanks; "mean" divides each by its target's length first.
    Infinite where no alignment fits, or 0 with ``zero_infinity``.  Targets and lengths may lie on
    the CPU.
    """
    reduction = reduction_of(None, None, reduction)
    _check_range(log_probs)
    single = log_probs.ndim == 2
    scores = log_probs.unsqueeze(1) if single else log_probs
    lengths = (_lengths(input_lengths), _lengths(target_lengths))
    _check_lengths(targets, lengths, *scores.shape[:2])
    inputs, wanted = [each.to(scores.device, ss.int64).reshape(-1) for each in lengths]
    if not 0 <= blank < scores.shape[2]:
        raise RuntimeError("blank must be in label range")
    targets = targets.to(scores.device)
    labels = _labels(targets.unsqueeze(0) if single and targets.ndim == 1 else targets, wanted,
                     blank)
    found = _likelihood(scores, labels, inputs, wanted, blank)
    impossible = found <= NOTHING / 2
    fill = 0.0 if zero_infinity else math.inf
    losses = ss.where(impossible, ss.full_like(found, fill), -found)
    losses = losses + ss.where(impossible, ss.zeros_like(found), _normalizer(scores, inputs))
    if single and reduction == "none":
        return losses.squeeze(0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return (losses / wanted.clamp(min=1).to(losses.dtype)).mean()
