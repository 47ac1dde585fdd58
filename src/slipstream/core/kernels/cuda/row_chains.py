"""A row kernel and the pointwise launches before and behind it as one kernel.

The row kernel's launch is the part of a chain (`launch.cuda.chains`) that reduces.  Its program and
those of its neighbours become one program under the plan of the row kernel alone, so that every
reduction has the order that it would have without neighbours.  A value goes from part to part as
it is stored, rounded as a store and a load would round it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import FLAT, ONCE, WIDEST, Words
from slipstream.core.kernels.cuda.epilogues import bind
from slipstream.core.kernels.cuda.joined import Joint, number_of, prefix, wiring
from slipstream.core.kernels.cuda.measures import KEPT_BYTES, KEPT_BYTES_LARGE, MOST_THREADS
from slipstream.core.kernels.cuda.rows import RowWriter
from slipstream.core.kernels.cuda.spaces import Space
from slipstream.core.kernels.cuda.stages import EACH
from slipstream.core.kernels.cuda.turns import ReducePlan
from slipstream.core.kernels.cuda.writing import Formula, narrowed, widened
from slipstream.core.launch.cuda.launches import KernelCode, Launch, Part
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import FULL, Input, Output, Program, Step

# What is the same for the elements of a row, or for all rows.
OTHERS = "others"
# Dtypes that hold every value of the class they are computed in.
UNROUNDED = frozenset(("bool", "int64", "float32", "float64", "complex64", "complex128"))


class RowPart(Part):
    """A row kernel's launch as a part of a chain.

    ``launch``: as it is without neighbours; ``facts``: the words of its tail, the space, the
    device.
    """

    def __init__(self, formula: Formula, plan: ReducePlan, launch: Launch, facts: Any) -> None:
        self.tail_words, space, self.device = facts
        reaches = [reach_of(space, place) for place in range(len(plan.kinds))]
        whole = [is_whole(formula, plan, space, place) for place in range(len(plan.kinds))]
        # Others are told apart: two with one address need not lie alike.
        access_kinds = [FLAT if flat else f"{OTHERS}{place}" for place, flat in enumerate(whole)]
        kinds = [number_of(dtype, kind)
                 for dtype, kind in zip(formula.dtypes, access_kinds, strict=True)]
        sizes = [dtype.itemsize if flat else -dtype.itemsize * reach for dtype, flat, reach in zip(
            formula.dtypes, whole, reaches, strict=True)]
        super().__init__(formula.outputs, tuple(kinds), tuple(sizes))
        self.reduces = self.dear = True
        # Its neighbours take as many elements at once as it does.
        self.widest = WIDEST // plan.vector
        self.access = tuple(access_kinds)
        self.dtypes = tuple(formula.dtypes)
        self.formula = formula
        self.plan = plan
        self.shape, self.tail = launch.shape, launch.tail
        self.words = [step.primitive for step in formula.program.steps]

    def types(self) -> list[str]:
        """The C types of the operands' elements."""
        return [self.formula.stored(place) for place in range(len(self.kinds))]

    def number_parameters(self, prefix: str) -> list[str]:
        """The parameters that are run-time numbers."""
        return Formula(self.formula.program, prefix).number_parameters()

    def joined(self, parts: tuple[Any, ...], codes: int, dead: int) -> Any:
        """What makes the launch of the parts; None where registers could not hold their rows, or
        what has to be written element by element is one value of a row, or of all.
        """
        joint = Joint(parts, wiring(parts, codes, dead))
        formula = JointFormula(joint)
        plan, words = self.spread(joint, parts.index(self))
        if not fits(formula, plan) or not writes_elements(formula, joint):
            return None
        writer = RowWriter(formula, plan, words)
        code = KernelCode(joint.name, writer.text()).made_by(writer.fusion)
        tail = access.packed(words)
        return partial(bind, code, modules.function(self.device, code, self.shape[2]), self.shape,
                       struct.pack(f"<{len(tail)}q", *tail))

    def spread(self, joint: Joint, own: int) -> tuple[ReducePlan, Words]:
        """The row kernel's plan and words for the operands of all parts.

        ``own``: its number among them.  What neighbours read or write lies as its results do.
        """
        words = {name: values for name, values in self.tail_words.items()
                 if not name.startswith("step")}
        like = next(place for place, kind in enumerate(self.access) if kind == FLAT)
        steps = self.tail_words[f"step{like}s"]
        kinds, shared = [], []
        for place, (part, operand) in enumerate(joint.places):
            if part == own:
                kinds.append(self.plan.kinds[operand])
                shared.append(self.plan.shared[operand])
                words[f"step{place}s"] = self.tail_words[f"step{operand}s"]
                continue
            once = joint.access[place] == ONCE
            kinds.append(ONCE if once else FLAT)
            shared.append(once and self.tail_words["rows"][0] > 1)
            words[f"step{place}s"] = [0] * len(steps) if once else steps
        return self.plan._replace(kinds=tuple(kinds), shared=tuple(shared)), words


def part_of(formula: Formula, plan: ReducePlan, launch: Launch, facts: Any) -> RowPart | None:
    """The part; None where rows are not kept in registers, or no operand lies in their order.

    ``facts``: the words of the tail, the space, and the device.
    """
    if plan.columns or plan.again or plan.shelf or plan.stage >= 0 or plan.cluster > 1:
        return None
    space: Space = facts[1]
    if min([step for steps in (*space.outer_steps, *space.inner_steps) for step in steps],
           default=0) < 0:
        return None
    made = RowPart(formula, plan, launch, facts)
    outputs = [place for place in range(made.outputs)
               if formula.stages.level[formula.program.outputs[place].value] == EACH]
    if FLAT not in made.access or any([made.access[place] != FLAT for place in outputs]):
        return None
    return made


def is_whole(formula: Formula, plan: ReducePlan, space: Space, place: int) -> bool:
    """Whether an operand has all elements, in their order."""
    each = (place >= formula.outputs
            and formula.stages.level[place - formula.outputs] == EACH) or (
        place < formula.outputs
        and formula.stages.level[formula.program.outputs[place].value] == EACH)
    return (each and plan.kinds[place] == FLAT and access.is_flat(
        (*space.outer, *space.inner), (*space.outer_steps[place], *space.inner_steps[place])))


def reach_of(space: Space, place: int) -> int:
    """Elements from the first to the last one of an operand."""
    return 1 + access.reach(space.outer, space.outer_steps[place]) + access.reach(
        space.inner, space.inner_steps[place])


def fits(formula: Formula, plan: ReducePlan) -> bool:
    """Whether a thread can keep what it reads."""
    kept = sum([dtype.itemsize for dtype, kind, shared in zip(
        formula.dtypes[formula.outputs:], plan.kinds[formula.outputs:],
        plan.shared[formula.outputs:], strict=True) if kind != ONCE and not shared])
    most = KEPT_BYTES_LARGE if plan.threads == MOST_THREADS else KEPT_BYTES
    return kept * plan.vector * plan.batch <= most


def writes_elements(formula: Formula, joint: Joint) -> bool:
    """Whether what lies in the order of elements depends on them: a fill's result does not."""
    outputs = zip(formula.program.outputs, joint.access[:joint.outputs], strict=True)
    return all([formula.stages.level[output.value] == EACH
                for output, access_kind in outputs if access_kind == FLAT])


class Composer:
    """Makes one program of those of a joint's parts.

    ``rounded``: steps whose value is stored as a dtype before it is used, by number.
    """

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.programs = [part.formula.program for part in joint.parts]
        self.inputs = self._inputs()
        self.numbers = tuple([cls for each in self.programs for cls in each.numbers])
        self.constants = tuple([one for each in self.programs for one in each.constants])
        self.first = len(self.inputs) + len(self.numbers) + len(self.constants)
        self.steps: list[Step] = []
        self.rounded: dict[int, DType] = {}
        # Of each part: the values of its inputs, numbers, constants and steps, as they are here.
        self.values: list[list[int]] = []
        self.stored: dict[tuple[int, int], int] = {}

    def program(self) -> Program:
        """The program: its outputs are what is written, in the order of the joint's places."""
        numbers = len(self.inputs)
        constants = numbers + len(self.numbers)
        for part, program in enumerate(self.programs):
            mine = [self._input(part, place) for place in range(len(program.inputs))]
            mine += range(numbers, numbers + len(program.numbers))
            mine += range(constants, constants + len(program.constants))
            numbers += len(program.numbers)
            constants += len(program.constants)
            self.values.append(mine)
            for step in program.steps:
                sources = tuple([mine[source] for source in step.sources])
                mine.append(self._add(step._replace(sources=sources)))
        outputs = tuple([Output(self._output(part, place), self.joint.parts[part].dtypes[place])
                         for part, place in self.joint.places[:self.joint.outputs]])
        return Program(self.inputs, self.numbers, self.constants, tuple(self.steps), outputs)

    def _inputs(self) -> tuple[Input, ...]:
        """What is read from memory: in its own class where its readers' differ."""
        joint = self.joint
        found = [self.programs[part].inputs[place - joint.parts[part].outputs]
                 for part, place in joint.places[joint.outputs:]]
        for part, program in enumerate(self.programs):
            wires = joint.wires[part][joint.parts[part].outputs:]
            for wire, own in zip(wires, program.inputs, strict=True):
                at = 0 if wire.maker else joint.place_of[wire.number] - joint.outputs
                if wire.maker is None and found[at].cls != own.cls:
                    found[at] = found[at]._replace(cls=found[at].dtype.compute)
        return tuple(found)

    def _add(self, step: Step) -> int:
        self.steps.append(step)
        return self.first + len(self.steps) - 1

    def _input(self, part: int, place: int) -> int:
        """The value of an input of a part."""
        joint = self.joint
        own = self.programs[part].inputs[place]
        wire = joint.wires[part][joint.parts[part].outputs + place]
        if wire.maker is None:
            found = joint.place_of[wire.number] - joint.outputs
            return self._cast(found, self.inputs[found].cls, own.cls, self.inputs[found].level)
        maker = self.joint.parts[wire.maker[0]]
        return self._cast(self._as_stored(*wire.maker),
                          maker.dtypes[wire.maker[1]].compute, own.cls, FULL)

    def _cast(self, value: int, cls: str, to: str, level: str) -> int:
        """A value in another class."""
        return value if cls == to else self._add(Step("cast", to, (value,), to, level))

    def _output(self, part: int, place: int) -> int:
        """The value that a part writes, before it is rounded."""
        return self.values[part][self.programs[part].outputs[place].value]

    def _as_stored(self, part: int, place: int) -> int:
        """The same as the next part reads it, in its dtype's class."""
        known = self.stored.get((part, place))
        if known is None:
            program, dtype = self.programs[part], self.joint.parts[part].dtypes[place]
            cls = program.class_of(program.outputs[place].value)
            known = self._output(part, place)
            if cls != dtype.compute or dtype.name not in UNROUNDED:
                known = self._add(Step("cast", dtype.compute, (known,), dtype.compute, FULL))
                self.rounded[known] = dtype
            self.stored[part, place] = known
        return known


class JointFormula(Formula):
    """The program of all parts, whose operands and numbers have the names that the parts say."""

    def __init__(self, joint: Joint) -> None:
        composer = Composer(joint)
        super().__init__(composer.program())
        self.joint = joint
        self.name = joint.name
        self.pointers = joint.pointers
        self.rounded = composer.rounded
        self.number_names = [f"{prefix(part)}n{place}"
                             for part, program in enumerate(composer.programs)
                             for place in range(len(program.numbers))]

    def expression(self, value: int, names: Any) -> str:
        """What a step computes; a value that parts hand on is rounded to the dtype between them."""
        dtype = self.rounded.get(value)
        if dtype is None:
            return super().expression(value, names)
        source = self.stages.sources(value)[0]
        stored = narrowed(self.program.class_of(source), dtype, names[source])
        return widened(dtype, dtype.compute, stored)

    def number_name(self, place: int) -> str:
        """The name of a run-time number as a parameter."""
        return self.number_names[place]

    def parameters(self, more: Sequence[str] = ()) -> str:
        """The parameters of all parts, one after the other, and the tail."""
        return self.joint.parameters()
