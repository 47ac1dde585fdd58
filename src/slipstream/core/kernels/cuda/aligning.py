# cython: annotation_typing=False
"""Operands at aligned addresses, for kernels that want them so.

An order of additions must not depend on where an operand lies: what lies elsewhere is copied, and
the same kernels run on the copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.walks import address, read_launch
from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import Plan, Spec, TensorBase


class Moving(NamedTuple):
    """A walk that moves every element of a spec to the same place of another memory."""

    dtype: DType
    numel: int
    shape: tuple[int, ...]
    target_strides: tuple[int, ...]
    source_strides: tuple[int, ...]
    indices: tuple[Any, ...] = ()


class Aligner:
    """Copies for one plan's operands, the first ``outputs`` of which are written."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs
        self.launches: dict[Spec, Launch | None] = {}

    def bring(self, plan: Plan, operands: tuple[Any, ...], alignment: int) -> tuple[Any, ...]:
        """The operands, with copies in the place of those at other addresses."""
        if not any([address(tensor) % alignment for tensor in operands]):
            return operands
        return tuple([tensor if address(tensor) % alignment == 0
                      else self.copied(plan, tensor, place >= self.outputs)
                      for place, tensor in enumerate(operands)])

    def copied(self, plan: Plan, tensor: TensorBase, read: bool) -> TensorBase:
        """A tensor with the same strides in memory of its own; ``read``: and the same elements."""
        backend: Any = plan.backend
        made = TensorBase()
        made.spec = tensor.spec
        made.offset = 0
        made.storage = backend.scratch(tensor.spec.extent)
        if read:
            self.move(plan, made, tensor)
        return made

    def give_back(self, plan: Plan, operands: tuple[Any, ...], moved: tuple[Any, ...]) -> None:
        """Bring what was written to copies to where it belongs."""
        for target, source in zip(operands[:self.outputs], moved, strict=False):
            if source is not target:
                self.move(plan, target, source)

    def move(self, plan: Plan, target: TensorBase, source: TensorBase) -> None:
        """Copy the elements of one tensor to the same places of another."""
        backend: Any = plan.backend
        spec = target.spec
        if spec not in self.launches:
            self.launches[spec] = read_launch(plan, Moving(
                spec.dtype, spec.numel, spec.shape, spec.strides, spec.strides))
        launch = self.launches[spec]
        if launch is not None:
            backend.record(launch, (address(target), address(source)), ())
