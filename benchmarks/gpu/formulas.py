"""Row formulas made up here, which become kernels as an op's formula does."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.fuse.trace import TensorArgument, trace
from slipstream.core.kernels.cuda.programs import ProgramKernel, Staged
from slipstream.core.launch.door import backend_of
from slipstream.core.shapes.broadcast import broadcast_strides
from slipstream.core.vocab.records import KERNEL, Plan


def cubes(x: Any, w: Any) -> Any:
    """The cube of x minus its maximum, times a weight, over a sum of squares."""
    low = x - x.amax(-1, keepdim=True)
    return low * low * low * w / (x * x).sum(-1, keepdim=True)


def spread(x: Any, w: Any) -> Any:
    """Where x lies between the least and the greatest of its row, weighted."""
    least = x.amin(-1, keepdim=True)
    return (x - least) / (x.amax(-1, keepdim=True) - least) * w


def shrunk(x: Any, w: Any) -> Any:
    """The hyperbolic tangent of x over its mean absolute value, less the mean of that."""
    bent = (x / x.abs().mean(-1, keepdim=True)).tanh()
    return (bent - bent.mean(-1, keepdim=True)) * w


def sharpened(x: Any, w: Any) -> Any:
    """A softmax of a sharpened row, times the row's root mean square."""
    raised = ((x - x.amax(-1, keepdim=True)) * w).exp()
    return raised / raised.sum(-1, keepdim=True) * (x * x).mean(-1, keepdim=True).sqrt()


def fourth(x: Any, w: Any) -> Any:
    """The fourth power of the centred row over its own mean."""
    low = x - x.mean(-1, keepdim=True)
    square = low * low
    return square * square * w / (square * square).mean(-1, keepdim=True)


FORMULAS = {"cubes": cubes, "spread": spread, "shrunk": shrunk, "sharpened": sharpened,
            "fourth power": fourth}


class RowFormula:
    """A formula of a table and a row of weights, both float32, bound to a result."""

    def __init__(self, formula: Any, x: Any, w: Any) -> None:
        arguments = {name: TensorArgument(each.dtype, each.dtype.compute, each.ndim, "full")
                     for name, each in (("x", x), ("w", w))}
        made = trace(formula, arguments, [ss.float32])
        self.tensors = (ss.empty_like(x), *[{"x": x, "w": w}[name] for name in made.operands])
        self.plan = Plan(table["add"], None, KERNEL)
        self.plan.backend = backend_of(x.spec.device)
        self.plan.kernel = ProgramKernel(made.program, ss.device("cuda", 0))
        domain = tuple(x.shape)
        strides = [tuple(broadcast_strides(each.spec.shape, each.spec.strides, domain))
                   for each in self.tensors]
        self.plan.binding = self.plan.kernel.bind(domain, made.reduced_dims, strides)

    def __call__(self) -> Any:
        """Run it into its result, which is returned."""
        self.plan.kernel.run(self.plan, self.tensors, ())
        return self.tensors[0]

    def kernels(self) -> int:
        """How many kernels it is."""
        binding = self.plan.binding
        return len(binding.stages) if isinstance(binding, Staged) else 1
