"""Several pointwise launches as one kernel: what one computes, the next finds in registers.

A part is a launch whose operands all lie in the order of its elements, or are one element.  The
joined kernel takes the argument words of its parts, one after the other, and asks memory for what
no part before has written.  A value goes from part to part as it is stored, so that it is rounded
exactly as if it had been written and read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.access import FLAT, ONCE
from slipstream.core.kernels.cuda.maps import IN_FLIGHT, MapPlan, MapWriter, grid_of, line_plan
from slipstream.core.kernels.cuda.writing import LONGEST_NAME, Formula, Lines
from slipstream.core.launch.cuda.launches import CHAIN, KernelCode, Launch, Part
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.dtypes import DType

# (dtype, kind of access) -> what tells them apart in `Part.kinds`; 0 is kept for what is not read.
kinds_of: dict[tuple[DType, str], int] = {}
_numbers = itertools.count(1)
SPACES = {FLAT: (1,), ONCE: (0,)}
# A vector of so many elements is work for a while: a thread asks for a second one meanwhile.
NARROW = 8


def number_of(dtype: DType, kind: str) -> int:
    """The number of a dtype and a kind of access; of two threads that meet it first, one gives it.
    """
    known = kinds_of.get((dtype, kind))
    return kinds_of.setdefault((dtype, kind), next(_numbers)) if known is None else known


class FlatPart(Part):
    """A part as the joined kernel prints it.

    ``words``: what tells in the kernel's name what it computes; ``dtypes`` and ``access``: of each
    operand.
    """

    words: list[str]

    def __init__(self, dtypes: Sequence[DType], access: Sequence[str], outputs: int,
                 device: Any) -> None:
        kinds, sizes = [], []
        for dtype, kind in zip(dtypes, access, strict=True):
            kinds.append(number_of(dtype, kind))
            sizes.append(dtype.itemsize if kind == FLAT else -dtype.itemsize)
        super().__init__(outputs, tuple(kinds), tuple(sizes))
        self.dtypes = tuple(dtypes)
        self.access = tuple(access)
        self.device = device

    def joined(self, parts: tuple[Any, ...], codes: int, dead: int) -> Any:
        """What makes the launch of parts for a count of elements: their kernel, bound."""
        joint = Joint(parts, wiring(parts, codes, dead))
        steps = tuple([SPACES[kind] for kind in joint.access])
        plan = line_plan(steps, tuple([dtype.itemsize for dtype in joint.dtypes]), joint.outputs)
        read = sum([dtype.itemsize * plan.vector for dtype in joint.dtypes[joint.outputs:]])
        if plan.vector >= NARROW and read <= IN_FLIGHT:
            plan = plan._replace(unroll=2)
        text = JoinedWriter(joint, plan).text()
        code = KernelCode(joint.name, text).made_by(CHAIN)
        function = modules.function(self.device, code)
        return partial(bind, code, function, plan)

    def types(self) -> list[str]:
        """The C types of the operands' elements."""
        raise NotImplementedError

    def number_parameters(self, prefix: str) -> list[str]:
        """The parameters that are run-time numbers."""
        raise NotImplementedError

    def add_uniform(self, lines: Lines, prefix: str) -> None:
        """What is the same for all elements."""

    def add_before(self, lines: Lines, prefix: str, vector: int) -> None:
        """What the elements of a vector share."""

    def add_element(self, lines: Lines, prefix: str, vector: int, read: list[str]) -> list[str]:
        """Element ``e`` of a vector from what was read; the results as they are stored."""
        raise NotImplementedError


class MapPart(FlatPart):
    """A program under a plan of maps."""

    def __init__(self, formula: Formula, kinds: Sequence[str], device: Any) -> None:
        super().__init__(formula.dtypes, kinds, formula.outputs, device)
        self.follows = True
        self.formula = formula
        self.words = [step.primitive for step in formula.program.steps]

    @staticmethod
    def of(formula: Formula, plan: MapPlan, device: Any) -> MapPart | None:
        """The part; None where elements are found in another way."""
        if any(kind not in SPACES for kind in plan.kinds) or ONCE in plan.kinds[:formula.outputs]:
            return None
        return MapPart(formula, plan.kinds, device)

    def types(self) -> list[str]:
        """The C types of the operands' elements."""
        return [self.formula.stored(place) for place in range(len(self.kinds))]

    def number_parameters(self, prefix: str) -> list[str]:
        """The parameters that are run-time numbers."""
        return Formula(self.formula.program, prefix).number_parameters()

    def add_uniform(self, lines: Lines, prefix: str) -> None:
        """Numbers, and what depends on nothing else."""
        Formula(self.formula.program, prefix).add_uniform(lines)

    def add_element(self, lines: Lines, prefix: str, vector: int, read: list[str]) -> list[str]:
        """The steps of the program."""
        formula = Formula(self.formula.program, prefix)
        for value, text in enumerate(read):
            loaded = formula.loaded(value, text)
            lines.add(f"const {formula.type_of(value)} {formula.values[value]} = {loaded};")
        for value in range(formula.stages.base, len(formula.values)):
            if formula.stages.level[value]:
                formula.add_step(lines, value)
        return [formula.narrowed(place, formula.values[output.value])
                for place, output in enumerate(formula.program.outputs)]


def bind(code: KernelCode, function: int, plan: MapPlan, count: int) -> Launch:
    """The launch for a count of elements."""
    return Launch(code, function, (*grid_of(plan, count), 0), (), count.to_bytes(8, "little"))


class Wire(NamedTuple):
    """An operand of a part: ``number`` of the place in memory where it lies.

    ``maker``: the (part, output) that wrote it before, or None where it comes from memory;
    ``kept``: whether an output is written there.
    """

    number: int
    maker: tuple[int, int] | None
    kept: bool


def wiring(parts: Sequence[Any], codes: int, dead: int) -> list[list[Wire]]:
    """Where each operand of each part comes from or goes to."""
    found: list[list[Wire]] = []
    makers: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    first = 0
    for part in parts:
        last |= {codes >> 4 * place & 15: place for place in range(first, first + part.outputs)}
        first += len(part.kinds)
    first = 0
    for number, part in enumerate(parts):
        wires = []
        for place in range(len(part.kinds)):
            code = codes >> 4 * (first + place) & 15
            kept = (place < part.outputs and last[code] == first + place
                    and not dead >> (first + place) & 1)
            wires.append(Wire(code, makers.get(code), kept))
        makers |= {wires[place].number: (number, place) for place in range(part.outputs)}
        found.append(wires)
        first += len(part.kinds)
    return found


class Joint:
    """What a writer of maps asks of a formula, for several parts.

    Its operands are the places that are written, then those that are read; ``place_of`` finds
    them by their number in the wiring.
    """

    def __init__(self, parts: Sequence[Any], wires: list[list[Wire]]) -> None:
        self.parts = parts
        self.wires = wires
        self.types = [part.types() for part in parts]
        written: list[tuple[int, int]] = []
        read: list[tuple[int, int]] = []
        for number, part in enumerate(parts):
            for place, wire in enumerate(wires[number]):
                if wire.kept:
                    written.append((number, place))
                elif (place >= part.outputs and part.sizes[place] and wire.maker is None
                      and wire.number not in [wires[p][q].number for p, q in read]):
                    read.append((number, place))
        self.outputs = len(written)
        self.places = written + read
        self.access = [parts[p].access[q] for p, q in self.places]
        self.dtypes = [parts[p].dtypes[q] for p, q in self.places]
        self.pointers = [pointer(p, q) for p, q in self.places]
        self.place_of = {wires[p][q].number: self.outputs + place
                         for place, (p, q) in enumerate(read)}

    @property
    def name(self) -> str:
        """A C name that tells what the kernel computes."""
        names = []
        for part in self.parts:
            words = "_".join(part.words) or "copy"
            if len(words) > LONGEST_NAME // 2:
                words = f"{words[:LONGEST_NAME // 2].rpartition('_')[0]}_of_{len(part.words)}"
            names.append(words)
        kinds = dict.fromkeys(each.removeprefix("slip_").removesuffix("_t")
                              for types in self.types for each in types if each != "void")
        return "_then_".join(names) + "_" + "_".join(kinds)

    def stored(self, place: int) -> str:
        """The C type of an operand's elements."""
        part, operand = self.places[place]
        return self.types[part][operand]

    def parameters(self) -> str:
        """The parameters of all parts, one after the other, and the tail."""
        found = []
        for number, part in enumerate(self.parts):
            for place, kind in enumerate(self.types[number]):
                written = self.wires[number][place].kept
                found.append(f"{'' if written else 'const '}{kind}* {pointer(number, place)}")
            found += part.number_parameters(prefix(number))
        return ", ".join([*found, "const tail_words tail"])

    def add_uniform(self, lines: Lines) -> None:
        """What is the same for all elements."""
        for number, part in enumerate(self.parts):
            part.add_uniform(lines, prefix(number))


def prefix(part: int) -> str:
    """What the names of a part begin with."""
    return f"p{part}_"


def pointer(part: int, place: int) -> str:
    """The name of an operand of a part."""
    return f"{prefix(part)}a{place}"


class JoinedWriter(MapWriter):
    """Writes the kernel of several parts."""

    def __init__(self, joint: Joint, plan: MapPlan) -> None:
        super().__init__(joint, plan, {"count": [0]})  # type: ignore[arg-type]
        self.joint = joint

    def _load_once(self) -> None:
        joint = self.joint
        for place in self._operands(ONCE):
            self.lines.add(f"const {joint.stored(place)} {self._held(place)} = "
                           f"{joint.pointers[place]}[0];")

    def _compute(self) -> None:
        joint, lines, plan = self.joint, self.lines, self.plan
        for place in range(joint.outputs):
            lines.add(f"{self._vector_type(place)} {self._held(place)} = {{}};")
        for number, part in enumerate(joint.parts):
            part.add_before(lines, prefix(number), plan.vector)
        lines.loop(f"for (int e = 0; e < {plan.vector}; e++)")
        for number in range(len(joint.parts)):
            self._compute_part(number)
        lines.close()

    def _compute_part(self, number: int) -> None:
        joint, lines = self.joint, self.lines
        part, wires = joint.parts[number], joint.wires[number]
        read = [self._read(wire) for place, wire in enumerate(wires)
                if place >= part.outputs and part.sizes[place]]
        results = part.add_element(lines, prefix(number), self.plan.vector, read)
        for place, text in enumerate(results):
            lines.add(f"const {joint.types[number][place]} {result(number, place)} = {text};")
            if wires[place].kept:
                held = self._held(joint.places.index((number, place)))
                lines.add(f"{held}.set(e, {result(number, place)});")

    def _read(self, wire: Wire) -> str:
        """An element as it is stored: from a part before, or from memory."""
        if wire.maker is not None:
            return result(*wire.maker)
        place = self.joint.place_of[wire.number]
        return self._held(place) if self.plan.kinds[place] == ONCE else self._element(place)


def result(part: int, output: int) -> str:
    """The name of a part's result as it is stored."""
    return f"{prefix(part)}s{output}"
