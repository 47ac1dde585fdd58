"""The entry: everything that is known of an op, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slipstream.core.dispatch.promotion import arithmetic
from slipstream.core.shapes.strides import contiguous_strides
from slipstream.core.vocab.autocast import DEVICE_TYPES

POINTWISE = "pointwise"
REDUCTION = "reduction"
COMPOSITE = "composite"
VIEW = "view"
LIBRARY = "library"
INDEX = "index"
RANDOM = "random"
COMPOUND = "compound"
CREATION = "creation"

# Kinds whose entries are formulas; the others hold kernels, geometry or calls of other ops.
FORMULA_KINDS = (POINTWISE, REDUCTION, COMPOSITE)

Function = Callable[..., Any]


def contiguous_layout(call: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A layout: the result is contiguous whatever the operands' strides."""
    return contiguous_strides(shape)


def passed_on(g: Any) -> Any:
    """The gradient of what is copied, or added to something: the result's own.

    Where nothing else is wanted of an op it is handed on as it is, without a kernel.
    """
    return g


def times_alpha(g: Any, alpha: Any) -> Any:
    """The gradient of what is added alpha times; where that is once, it is handed on as well."""
    known = alpha.conjugate() if isinstance(alpha, (int, float, complex)) else alpha.conj()
    return g * known


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entry:
    """One op.

    signature: parameters and their types (see `signature`).
    kind: pointwise, reduction, composite (formulas); view; library, index, random (kernels);
        compound (calls other ops); creation.
    formula: the maths, over operators and methods, called with symbols once per recipe.
    promotion: (call) -> (dtype computed in, dtype of the result, or a tuple of these): a rule of
        `promotion`.
    gradient: for each differentiable parameter a formula over ``g`` (the upstream gradient), the
        parameters, ``out``, ``out_1`` (the second result) and ``<parameter>_spec``; what a formula
        names is what is saved.
    joint: where gradients share what they compute but are no one program: a function of (names
        of the inputs that want one, in order; their dtypes), and of what it names as formulas do
        (None where no wanted gradient's formula names it) -> their gradients, or None where the
        formulas shall be taken.  Of an entry of kernels specs alone decide that.
    widens: whether gradients come out the same from a ``g`` in 16 bits as from its cast to the
        result's dtype, so that nobody needs to cast it before.
    upstream: a formula over the same names whose result takes the place of ``g`` in the others:
        what they share is computed once.
    geometry: for views, (spec, ...) -> (shape, strides, offset delta), and the dtype where it is
        another; the delta counts elements of the view.
    otherwise: for views whose geometry may be None: the function that then takes their place.
    shape: for kernels, (call) -> list of (dtype, shape) of the results; for formulas without
        tensor operands, (call) -> the shape of the domain.
    function: for compound ops, the Python function.
    memory: for compound ops that make tensors, (size) -> (op, arguments): the call that one with
        nothing but sizes comes down to; only the plan may depend on the size.
    check: (call) -> None; raises for operands that the op refuses by dtype, rank or static
        argument; for formulas asked once a recipe, and ``check_sizes`` once a plan.
    fits: for formulas, (values) -> bool: whether ``check_sizes`` lets them pass, asked where a
        plan is made from a known recipe the short way; without it that way is not taken.
    path: where users find the function, such as ``nn.functional.relu``; "" for methods only.
    method, inplace, out: whether there is a method, an in-place form, an ``out=`` form.
    recasts: whether the kernel writes an ``out=`` of another dtype than its result's.
    stores: parameters whose Python numbers are stored as they are, so that they have to fit the
        dtype of the result.
    converts: whether in-place and out= forms may cast to a lower kind, as copy_ does.
    uniform: whether a number as second argument is all that is written, so that the in-place form
        may write to a target several of whose elements are one place in memory.
    alike: for formulas, whether operands are rounded to the dtype computed in first, where that
        has 16 bits: what was stored is found again by the number that it was made from.
    layout: (call, shape) -> strides of the result, where they do not follow the operands.
    aliases: other names of function and method; with a dot the path of another function.
    waits: ``never``, ``always`` or ``data``: whether a call waits for the device; ``data``: by what
        it is given, or where.
    host: whether it is computed on the CPU alone: callers bring tensors there and back.
    autocast: what autocast does with a plain call: ``lower`` (floating operands but float64 are
        cast to its dtype), ``float32`` (to float32; an op with a ``dtype`` parameter gets it
        instead), ``widest`` (to the widest dtype among them), ``refused`` (raises), ``asleep``
        (nothing; nor with the ops that the op calls), ``""`` (nothing with the op itself); or a
        dict by device type where these differ.
    samples: () -> list of (args, kwargs) over NumPy arrays; reference: the same in NumPy.
    shown: the name by which errors call an op that users write in another way, as they do indexing;
        its ``any`` arguments are then left out.
    exceptions: check name -> reason, for what conformance finds different on purpose.
    """

    signature: str
    kind: str
    formula: Function | None = None
    promotion: Function = arithmetic
    gradient: dict[str, Function] = field(default_factory=dict)
    joint: Function | None = None
    widens: bool = False
    upstream: Function | None = None
    geometry: Function | None = None
    otherwise: Function | None = None
    shape: Function | None = None
    function: Function | None = None
    memory: Function | None = None
    check: Function | None = None
    check_sizes: Function | None = None
    fits: Function | None = None
    path: str | None = None
    method: bool = True
    inplace: bool = False
    out: bool = False
    recasts: bool = False
    stores: tuple[str, ...] = ()
    converts: bool = False
    uniform: bool = False
    alike: bool = False
    layout: Function | None = None
    aliases: tuple[str, ...] = ()
    waits: str = "never"
    host: bool = False
    deterministic: bool = True
    autocast: str | dict[str, str] = ""
    samples: Function | None = None
    reference: Function | None = None
    dtypes: tuple[str, ...] = ("bool", "int", "float", "complex")
    doc: str = ""
    shown: str = ""
    exceptions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The op's name: the signature's first word."""
        return self.signature.partition("(")[0].strip()

    @property
    def policies(self) -> dict[str, str]:
        """What autocast does with the op, by device type."""
        if isinstance(self.autocast, dict):
            return self.autocast
        return dict.fromkeys(DEVICE_TYPES, self.autocast) if self.autocast else {}
