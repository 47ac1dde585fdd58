# cython: annotation_typing=False
"""Largest and smallest elements: max and min in their three forms, aminmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import reasons, results, samples
from slipstream.core.catalog.reductions import nonempty, ordered
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, REDUCTION, Entry
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase

REAL = ("int", "float")
ORDERED = ("bool", "int", "float")


def placed(g: Any, indices: Any, self_spec: Any, dim: int, keepdim: bool) -> Any:
    """Zeros of the operand's shape with the gradient where the index along dim says."""
    zeros = ops.new_zeros.call((g, self_spec.shape), None)
    if self_spec.ndim and not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return ops.scatter.call((zeros, dim, indices, g), None)


def _places(call: Any) -> Any:
    """Computed in the operand's dtype; the places are int64, the values of the operand's."""
    own = call.spec("self").dtype
    return own, (dtypes.int64, own)


for _name in ("max", "min"):
    # The places come first: a rule saves the first result.
    define(Entry(
        f"arg_and_{_name}(Tensor self, int dim, bool keepdim=False)", REDUCTION,
        formula=lambda self, dim, keepdim, name=_name: (
            getattr(self, f"arg{name}")(dim, keepdim=keepdim),
            getattr(self, f"a{name}")(dim, keepdim=keepdim)),
        gradient={"self": lambda grads, out, self_spec, dim, keepdim: placed(
            grads[1], out, self_spec, dim, keepdim)},
        promotion=_places, check=ordered, check_sizes=nonempty, path="", method=False,
        dtypes=ORDERED, doc="Places, then values, of the extremum along dim; nan wins.",
    ))


def _extreme(name: str) -> Any:
    along, everywhere = f"arg_and_{name}", f"a{name}"
    pairwise = {"max": "maximum", "min": "minimum"}[name]
    made = results.RESULTS[name]

    def function(self: Any, dim: Any, keepdim: bool, other: Any) -> Any:
        if isinstance(dim, TensorBase) or other is not None:
            return getattr(ops, pairwise).call((self, dim if other is None else other), None)
        if dim is not None:
            indices, values = getattr(ops, along).call((self, dim, keepdim), None)
            return made(values, indices)
        if not self.spec.numel:
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for "
                               "input.numel() == 0. Specify the reduction dim with the 'dim' "
                               f"argument.: {self.spec!r}")
        return getattr(ops, everywhere).call((self,), None)

    return function


def _reference(values: Any, places: Any) -> Any:
    def reference(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return values(x)
        if isinstance(dim, np.ndarray):
            return (np.maximum if values is np.max else np.minimum)(x, dim)
        return (values(x, axis=dim, keepdims=keepdim), places(x, axis=dim, keepdims=keepdim))

    return reference


def _samples() -> Any:
    x = samples.random_array(110, 2, 3, 4)
    return [((x,), {}), ((x, 1), {}), ((x, -1), {"keepdim": True}),
            ((x, samples.random_array(111, 3, 4)), {}), ((samples.random_array(112, 5), 0), {})]


for _name, _values, _indices in (("max", np.max, np.argmax), ("min", np.min, np.argmin)):
    define(Entry(
        f"{_name}(Tensor self, any dim=None, bool keepdim=False, *, Tensor? other=None)", COMPOUND,
        function=_extreme(_name), path=_name, samples=_samples, dtypes=REAL,
        reference=_reference(_values, _indices),
        doc=f"The {_name} of all elements; with dim (values, indices) along it; with a second "
            "tensor the elementwise one. nan wins; of all elements, ties share the gradient; "
            "along a dim the first has it.",
    ))


def _aminmax(self: Any, dim: Any, keepdim: bool) -> Any:
    dims = () if dim is None else (dim,)
    if self.spec.ndim == 0 and dim not in (None, 0, -1):
        raise IndexError(f"Dimension out of range (expected to be in range of [-1, 0], but got "
                         f"{dim})")
    return results.Aminmax(ops.amin.call((self, dims, keepdim), None),
                           ops.amax.call((self, dims, keepdim), None))


define(Entry(
    "aminmax(Tensor self, *, int? dim=None, bool keepdim=False)", COMPOUND, function=_aminmax,
    path="aminmax", dtypes=ORDERED,
    samples=lambda: [((samples.random_array(113, 3, 4),), {}),
                     ((samples.random_array(114, 3, 4),), {"dim": 1, "keepdim": True})],
    reference=lambda x, dim=None, keepdim=False: (
        np.min(x, axis=dim, keepdims=keepdim), np.max(x, axis=dim, keepdims=keepdim)),
    exceptions=reasons.CONVERTED,
    doc="The smallest and the largest elements, along dim if given: (min, max).",
))
