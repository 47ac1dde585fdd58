"""Normalisation over batches and instances."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class _Tracking(Module):
    """Weight and bias of each channel, and running statistics, each if wanted."""

    weight: Parameter | None
    bias: Parameter | None
    running_mean: ss.Tensor | None
    running_var: ss.Tensor | None
    num_batches_tracked: ss.Tensor | None
    _version = 2
    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, device: Any = None,
                 dtype: ss.dtype | None = None, *, bias: bool = True) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        place: Any = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name, Parameter(ss.empty(num_features, **place)) if wanted else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", ss.zeros(num_features, **place) if tracked else None)
        self.register_buffer("running_var", ss.ones(num_features, **place) if tracked else None)
        self.register_buffer("num_batches_tracked", ss.tensor(0, dtype=ss.int64, device=device)
                             if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, variance 1."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forget what was seen, and set weight to 1 and bias to 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: ss.Tensor) -> None:
        if input.ndim not in self.ranks:
            wanted = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, bias={self.bias is not None}, "
                f"track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any,
                              *rest: Any) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            # States of before there was such a count.
            counted = self.num_batches_tracked
            known = counted is not None and counted.device.type != "meta"
            state_dict[key] = counted if known else ss.tensor(0, dtype=ss.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_Tracking):
    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape; ValueError for an input of another rank."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        counts = self.training and self.track_running_stats
        if counts and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        keeps = not self.training or self.track_running_stats
        return functional.batch_norm(
            input, self.running_mean if keeps else None, self.running_var if keeps else None,
            self.weight, self.bias, by_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Each of C features of (N, C) or (N, C, L) normalised over the batch.

    In training by the batch's mean and variance, which also move the running ones by ``momentum``
    (None: their plain average); in evaluation by the running ones.
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each of C channels of images (N, C, H, W) normalised over the batch; see BatchNorm1d."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Each of C channels of volumes (N, C, D, H, W) normalised over the batch."""

    ranks = (5,)


class _InstanceNorm(_Tracking):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = False, track_running_stats: bool = False, device: Any = None,
                 dtype: ss.dtype | None = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape; ValueError for an input of another rank."""
        self._check_input_dim(input)
        single = input.ndim == min(self.ranks)
        given = input.unsqueeze(0) if single else input
        output = functional.instance_norm(
            given, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps)
        return output.squeeze(0) if single else output


class InstanceNorm1d(_InstanceNorm):
    """Each feature of each sample of (N, C, L) or (C, L) normalised over L."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image (N, C, H, W) or (C, H, W) normalised."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each volume (N, C, D, H, W) or (C, D, H, W) normalised."""

    ranks = (4, 5)
