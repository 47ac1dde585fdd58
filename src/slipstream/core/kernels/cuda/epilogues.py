"""A product and the pointwise launches behind it as one kernel: its epilogue.

The product's launch is a part that only ever is the first of a chain (`launch.cuda.chains`): its
sides are read by many blocks, so that nothing of the chain may write there.  What the product
stored comes to the next part as a register, rounded as a store and a load would round it; what
else the parts read is asked for before there are sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from slipstream.core.kernels.cuda.access import FLAT
from slipstream.core.kernels.cuda.joined import (
    Joint,
    Wire,
    number_of,
    pointer,
    prefix,
    result,
    wiring,
)
from slipstream.core.kernels.cuda.tiles import Product, Sizes
from slipstream.core.kernels.cuda.writing import STORED, Lines
from slipstream.core.launch.cuda.launches import EPILOGUE, KernelCode, Launch, Part
from slipstream.core.launch.cuda.modules import modules

# Sizes of which a product's kernel may take what follows into it.  A program that meets more has
# new ones all the time: looking for what follows would take the host longer than it saves.
LEADING = 64
# How memory is seen that many blocks read.
WHOLE = "whole"
# Where the sum of an element is rounded, it is kept.
_KEEP = "#define KEEP(value) kept = value\n"


class ProductPart(Part):
    """A product's launch as the head of a chain.

    ``code_of``: the kernel of a product's text; ``launch``: the product's own, whose shape and tail
    the chain's has too; ``reaches``: bytes of each operand that is only read.
    """

    words = ("product",)

    def __init__(self, product: Product, code_of: Callable[[Product], KernelCode], launch: Launch,
                 device: Any, dtype: Any, reaches: Sequence[int]) -> None:
        access = (FLAT, *[WHOLE] * len(reaches))
        kinds = [number_of(dtype, kind) for kind in access]
        super().__init__(1, tuple(kinds), (dtype.itemsize, *[-reach for reach in reaches]))
        self.heads = True
        self.access = access
        self.dtypes = (dtype,) * len(access)
        self.product = product
        self.code_of = code_of
        self.shape, self.tail = launch.shape, launch.tail
        self.device = device

    def types(self) -> list[str]:
        """The C types of the operands' elements."""
        return [STORED[dtype.name] for dtype in self.dtypes]

    def joined(self, parts: tuple[Any, ...], codes: int, dead: int) -> Any:
        """What makes the launch of the product and the parts behind it."""
        joint = Joint(parts, wiring(parts, codes, dead))
        code = self.code_of(EpilogueWriter(joint, self.product).product())
        function = modules.function(self.device, code, self.shape[2])
        return partial(bind, code.made_by(EPILOGUE), function, self.shape, self.tail)


def lead(spec: Any, product: Product, code_of: Callable[[Product], KernelCode], launch: Launch,
         facts: tuple[Sizes, list[int]], *, dear: bool = False) -> None:
    """Let a product's launch be the head of chains, where its elements are all that it writes.

    ``spec``: of the result; ``facts``: its sizes, and the steps of `reaches_of`; ``dear``: see
    `Part`.
    """
    sizes, steps = facts
    reaches = reaches_of(product, sizes, steps, spec.itemsize)
    if reaches:
        launch.part = ProductPart(product, code_of, launch, spec.device, spec.dtype, reaches)
        launch.part.dear = dear
        launch.count = sizes.rows * sizes.columns


def reaches_of(product: Product, sizes: Sizes, steps: list[int], itemsize: int) -> list[int]:
    """Bytes from the first to the last element of all that is read, where launches may be joined.

    That is where there is one result, whose elements follow each other; else nothing.  ``steps``:
    of the left side, the right one, the result and what is added, as the tail ends with them.
    """
    left_row, left_k, right_k, right_column, *others = steps
    out_row, out_column, added_row, added_column = others
    if product.out != "item_t* out" or out_column != 1 or sizes.batches != 1 or (
            sizes.rows > 1 and out_row != sizes.columns):
        return []
    down, across, deep = sizes.rows - 1, sizes.columns - 1, sizes.depth - 1
    if min(deep, *steps) < 0:
        return []
    reaches = [down * left_row + deep * left_k + 1, across * right_column + deep * right_k + 1]
    if product.extra:
        reaches.append(down * added_row + across * added_column + 1)
    return [reach * itemsize for reach in reaches]


def bind(code: KernelCode, function: int, shape: Any, tail: bytes, count: int) -> Launch:
    """The launch, whose count of elements is the product's."""
    return Launch(code, function, shape, (), tail)


class EpilogueWriter:
    """Writes the text of a product that goes on where it would have stored."""

    def __init__(self, joint: Joint, product: Product) -> None:
        self.joint = joint
        self.plain = product

    def product(self) -> Product:
        """The product with its epilogue."""
        plain, joint = self.plain, self.joint
        return plain._replace(
            name=joint.name, head=_KEEP + plain.head,
            numbers="".join([f", {each}" for each in self._parameters()]),
            place=plain.place + self._uniform(), ahead=plain.ahead + self._reads(),
            store=self._stores(), fours=self._fours())

    def _parameters(self) -> list[str]:
        joint = self.joint
        found = []
        for number, part in enumerate(joint.parts[1:], 1):
            for place, kind in enumerate(joint.types[number]):
                written = joint.wires[number][place].kept
                found.append(f"{'' if written else 'const '}{kind}* {pointer(number, place)}")
            found += part.number_parameters(prefix(number))
        return found

    def _uniform(self) -> str:
        lines = Lines()
        for number, part in enumerate(self.joint.parts[1:], 1):
            part.add_uniform(lines, prefix(number))
        return lines.text()

    def _reads(self) -> str:
        """What the parts read, of the element at (row, column)."""
        joint = self.joint
        lines = Lines()
        for number, operand in joint.places[joint.outputs:]:
            if number:
                at = "row * walk.columns + column" if joint.parts[number].access[operand] == FLAT \
                    else "0"
                name = pointer(number, operand)
                lines.add(f"const {joint.types[number][operand]} {name}_held = {name}[{at}];")
        return lines.text()

    def _stores(self) -> str:
        """The rounded sum, and what the parts make of it."""
        lines = Lines()
        lines.add("const int64_t element = row * walk.columns + column;")
        self._add_element(lines, "{}_held", "{}[element] = {};")
        return lines.text()

    def _add_element(self, lines: Lines, held: str, stored: str) -> None:
        """An element: ``held``: one that was asked for; ``stored``: how a result is (pointer, it).
        """
        joint = self.joint
        lines.add("item_t kept = {};", f"{{ {self.plain.store} }}",
                  f"const item_t {result(0, 0)} = kept;")
        if joint.wires[0][0].kept:
            lines.add(stored.format("out", result(0, 0)))
        for number, part in enumerate(joint.parts[1:], 1):
            wires = joint.wires[number]
            read = [self._read(wire, held) for place, wire in enumerate(wires)
                    if place >= part.outputs and part.sizes[place]]
            for place, text in enumerate(part.add_element(lines, prefix(number), 1, read)):
                lines.add(f"const {joint.types[number][place]} {result(number, place)} = {text};")
                if wires[place].kept:
                    lines.add(stored.format(pointer(number, place), result(number, place)))

    def _read(self, wire: Wire, held: str) -> str:
        """An element as it is stored: from a part before, or asked for before."""
        if wire.maker is not None:
            return result(*wire.maker)
        place = self.joint.place_of[wire.number]
        name = pointer(*self.joint.places[place])
        return f"{name}_held" if self.joint.access[place] != FLAT else held.format(name)

    def _fours(self) -> tuple[str, str, str, str, str]:
        """The same for four elements of a row, the first at ``spot``, of which some are ``there``.

        Vectors of what is read, number n of which is asked for before the first is used; vectors
        of results, an element of them, and how they are written.
        """
        joint = self.joint
        held, reads, made, element, writes = [Lines() for _ in range(5)]
        for place, (number, operand) in enumerate(joint.places):
            kind = joint.types[number][operand]
            name = pointer(number, operand) if number else "out"
            whole = f"full && slip_aligned<{kind}>({name} + spot, 4 * sizeof({kind}))"
            if place < joint.outputs:
                made.add(f"slip_vector<{kind}, 4> {name}_made = {{}};")
                writes.add(f"slip_write({name} + spot, {name}_made, there, {whole});")
            elif number and joint.access[place] == FLAT:
                held.add(f"slip_vector<{kind}, 4> {name}_held[some];")
                reads.add(f"{name}_held[n] = slip_read<{kind}, 4>({name} + spot, there, {whole});")
            elif number:
                held.add(f"const {kind} {name}_held = {name}[0];")
        element.add(self.plain.ahead)
        self._add_element(element, "{}_held[n].get(e)", "{}_made.set(e, {});")
        return held.text(), reads.text(), made.text(), element.text(), writes.text()
