# cython: annotation_typing=False
"""The CUDA kernel of formulas: prints a program as CUDA C++ under one schedule, and launches it.

The schedules name no op: `maps` computes every element by itself, `rows` and `columns` reduce.
A source is made once for each program and plan; sizes, strides and numbers are arguments, so that
other shapes of the same kind need no compilation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import Ints, Words
from slipstream.core.kernels.cuda.briefs import with_fewer_walks
from slipstream.core.kernels.cuda.columns import ColumnWriter
from slipstream.core.kernels.cuda.epilogues import LEADING
from slipstream.core.kernels.cuda.joined import MapPart
from slipstream.core.kernels.cuda.layouts import cut
from slipstream.core.kernels.cuda.maps import (
    BLOCK,
    MapPlan,
    MapWriter,
    flat_plan,
    grid_of,
    map_space,
    plan_map,
)
from slipstream.core.kernels.cuda.narrow import NarrowWriter
from slipstream.core.kernels.cuda.row_chains import part_of
from slipstream.core.kernels.cuda.rows import RowWriter
from slipstream.core.kernels.cuda.spaces import Reduction, Space, space_of
from slipstream.core.kernels.cuda.stages import LINE, is_map
from slipstream.core.kernels.cuda.tiling import TilePlan, TileWriter, blocks_of, plan_tiles
from slipstream.core.kernels.cuda.turns import ReducePlan
from slipstream.core.kernels.cuda.writing import PACKED, Formula
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.launch.cuda.series import Staged, Step
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.programs import FULL, Program

AnyPlan = MapPlan | TilePlan | ReducePlan
Sizes = tuple[int, int, int]
Shape = tuple[Sizes, Sizes, int]
# A space of maps: sizes of the dims, and steps of each operand.
AnySpace = Space | tuple[Ints, Sequence[Ints]]
Ready = tuple[AnyPlan, Words, Shape]
# Arrays in scratch memory begin at multiples of this.
ALIGNMENT = 256
# The generation of cards from which on blocks run in clusters.
CLUSTERS_SINCE = 9


class ProgramKernel(LaunchKernel):
    """Runs one program on a device."""

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.has_rows = program.has_rows
        self.device = device
        self.formula = Formula(program)
        self.name = f"cuda {self.formula.name}"
        self.numbers = tuple([PACKED[cls] for cls in program.numbers])
        self.itemsizes = [dtype.itemsize for dtype in self.formula.dtypes]
        self.reduction = Reduction(self.formula)
        # The program with fewer walks over its elements, for plans that would read them again.
        brief = with_fewer_walks(program)
        self.brief = self.formula if brief is None else Formula(brief)
        if brief is not None:
            self.reduction.brief = Reduction(self.brief)
        self.maps = is_map(program) and self._alike()
        # The plan of a map whose operands all lie alike.
        self.flat: Any = None
        if self.maps and not self.has_rows and not self.formula.counts:
            self.flat = flat_plan(tuple(self.itemsizes), self.formula.outputs)
        # How many launches of rows were bound.
        self.bound = 0
        # By plan: how neighbours of its launches see it; None where it stands alone.
        self.seen: dict[MapPlan, MapPart | None] = {}
        # By plan, which also tells what words there are in the tail.
        self.codes: dict[AnyPlan, KernelCode] = {}
        self.parts: dict[AnyPlan, tuple[list[str], bool]] = {}
        # By formula: the arrays in scratch memory.
        self.scratches: dict[Formula, list[tuple[str, int]]] = {}

    def _alike(self) -> bool:
        """Whether all outputs fill the domain, or all have one value a row."""
        levels = {self.program.level_of(output.value) for output in self.program.outputs}
        return len(levels) == 1 or not self.has_rows

    def bind(self, domain: Ints, reduced: Ints, strides: Sequence[Ints]) -> Launch | Staged | None:
        """The launches for sizes and strides (elements, outputs first); None for no elements."""
        if self.flat is not None and strides.count(strides[0]) == len(strides) and (
                access.is_flat(domain, strides[0])):
            return self._bind_flat(access.count_of(domain))
        space = self.collapse(domain, reduced, strides)
        if space is None:
            return None
        inner = access.count_of([domain[dim] for dim in reduced]) if self.has_rows else 1
        ready = self.schedule(space)
        plan = ready[0][0]
        if isinstance(plan, ReducePlan) and plan.stage >= 0:
            return self._bind_stages(ready, inner)
        made = self._launch(*ready[0], inner)
        if isinstance(plan, ReducePlan) and isinstance(space, Space):
            self._join_rows(made, plan, (self.counted(ready[0][1], inner), space, self.device))
        return made

    def _join_rows(self, launch: Launch, plan: ReducePlan, facts: Any) -> None:
        """Tell what neighbours of a launch of a row kernel have to know, of the first sizes."""
        self.bound += 1
        if self.bound <= LEADING:
            launch.part = part_of(self.formula_of(plan), plan, launch, facts)
            launch.count = facts[1].rows * facts[1].length

    def _bind_flat(self, count: int) -> Launch | None:
        """The launch where all operands lie in the order of the domain: only its size counts."""
        if not count:
            return None
        plan = self.flat
        code = self.printed(plan, {"count": [count]})
        function = modules.function(self.device, code)
        made = Launch(code, function, (*grid_of(plan, count), 0), self.numbers,
                      count.to_bytes(8, "little"))
        self.join(made, plan, count)
        return made

    def join(self, launch: Launch, plan: MapPlan, count: int) -> None:
        """Tell what neighbours of a launch of a map have to know."""
        if plan not in self.seen:
            alone = self.formula.raw or self.formula.counts or self.has_rows
            self.seen[plan] = None if alone else MapPart.of(self.formula, plan, self.device)
        launch.part, launch.count = self.seen[plan], count

    def collapse(self, domain: Ints, reduced: Ints, strides: Sequence[Ints]) -> AnySpace | None:
        """The domain in as few dims as the strides allow; None where there is nothing to compute.

        For a map (sizes, steps of each operand); for reductions rows and their elements.
        """
        if self.maps:
            if self.has_rows and reduced:
                domain, strides = self._mapped(domain, reduced, strides)
            domain = self._written(domain, strides)
            return None if 0 in domain else map_space(domain, strides)
        space = space_of(self.reduction, domain, reduced if self.has_rows else (), strides)
        if space.rows == 0 or (space.length == 0 and not self._has_lines()):
            return None
        return space

    def schedule(self, space: AnySpace) -> list[Ready]:
        """The plan of each launch over a space, with the words of its tail and its shape."""
        if isinstance(space, Space):
            return [(each.plan, each.words, ((each.blocks, each.chunks, 1), (*each.block, 1),
                                             each.shared))
                    for each in cut(self.reduction, space, self.card)]
        sizes, steps = space
        tiled = plan_tiles(sizes, steps, self.itemsizes, self.formula.outputs)
        if tiled is not None:
            return [(*tiled, ((blocks_of(tiled[1]), 1, 1), (BLOCK, 1, 1), 0))]
        plan, words = plan_map(sizes, steps, self.itemsizes, self.formula.outputs)
        return [(plan, words, (*grid_of(plan, words["count"][0]), 0))]

    def printed(self, plan: AnyPlan, words: Words) -> KernelCode:
        """The CUDA C++ of a plan; ``words`` tell what its tail holds."""
        code = self.codes.get(plan)
        if code is None:
            formula = self.formula_of(plan)
            writer = self._writer(plan)(formula, plan, words)
            code = KernelCode(formula.name, writer.text()).made_by(writer.fusion)
            self.codes[plan] = code
        return code

    def formula_of(self, plan: AnyPlan) -> Formula:
        """What a plan's kernel computes: the program, or the same with fewer walks."""
        return self.brief if isinstance(plan, ReducePlan) and plan.brief else self.formula

    @cached_property
    def card(self) -> tuple[int, int, bool]:
        """Bytes of shared memory that a block may have; how many processors; whether clusters."""
        properties = drivers.current().properties(self.device.index or 0)
        return (int(properties.shared_memory_per_block_optin),
                int(properties.multi_processor_count), properties.major >= CLUSTERS_SINCE)

    def _has_lines(self) -> bool:
        level = self.formula.stages.level
        return any(level[output.value] <= LINE for output in self.program.outputs)

    def _mapped(self, domain: Ints, reduced: Ints,
                strides: Sequence[Ints]) -> tuple[Ints, Sequence[Ints]]:
        """The domain that a map fills: without inner dims where its outputs have none."""
        if self.program.level_of(self.program.outputs[0].value) == FULL:
            return domain, strides
        kept = [dim for dim in range(len(domain)) if dim not in reduced]
        return (tuple([domain[dim] for dim in kept]),
                [tuple([steps[dim] for dim in kept]) for steps in strides])

    def _written(self, domain: Ints, strides: Sequence[Ints]) -> Ints:
        """The domain without the repetitions of places that a fill with a number may write."""
        outputs = strides[:len(self.program.outputs)]
        return tuple([1 if size > 1 and not any([steps[dim] for steps in outputs]) else size
                      for dim, size in enumerate(domain)])

    def _launch(self, plan: AnyPlan, words: Words, shape: Shape, inner: int) -> Launch:
        """A launch of a plan's kernel; ``shape``: sizes of grid and block, shared memory."""
        words = self.counted(words, inner)
        tail = access.packed(words)
        code = self.printed(plan, words)
        # As `make_launch` makes it; bindings are made for every new size.
        made = Launch(code, modules.function(self.device, code, shape[2]), shape, self.numbers,
                      struct.pack(f"<{len(tail)}q", *tail))
        if isinstance(plan, MapPlan):
            self.join(made, plan, words["count"][0])
        return made

    def counted(self, words: Words, inner: int) -> Words:
        """The words of a tail, with the number of elements of a row where it is asked for."""
        return {"inner": [inner], **words} if self.formula.counts else words

    def _bind_stages(self, ready: list[Ready], inner: int) -> Staged:
        layout, nbytes = self._scratch(ready[0][0], ready[0][1])
        if any([plan not in self.parts for plan, _, _ in ready]):
            modules.prepare(self.device, [self.printed(plan, self.counted(words, inner))
                                          for plan, words, _ in ready])
        stages = []
        whole = range(len(self.itemsizes))
        for plan, words, shape in ready:
            names, joins = self._parts_of(plan, words)
            parts = [-1 - layout[name] for name in names]
            launch = self._launch(plan, words, shape, inner)
            stages.append(Step(launch, (*whole, *parts), joins))
        return Staged(stages, nbytes)

    def _parts_of(self, plan: AnyPlan, words: Words) -> tuple[list[str], bool]:
        """Names of the arrays that a stage has in scratch memory; whether its blocks are counted.

        They depend on the plan alone: writers are made once for each.
        """
        known = self.parts.get(plan)
        if known is None:
            writer = self._writer(plan)(self.formula_of(plan), plan, words)
            known = self.parts[plan] = ([name for _, _, name in writer.parts()], writer.joins)
        return known

    @staticmethod
    def _writer(plan: AnyPlan) -> Any:
        if isinstance(plan, TilePlan):
            return TileWriter
        if isinstance(plan, MapPlan):
            return MapWriter
        if plan.narrow:
            return NarrowWriter
        return ColumnWriter if plan.columns else RowWriter

    def _scratch(self, plan: AnyPlan, words: Words) -> tuple[dict[str, int], int]:
        """Where each array lies in scratch memory, and how much there is in all."""
        count = words["rows"][0] * words["chunks"][0] * words.get("across", [1])[0]
        layout = {}
        end = 0
        for name, size in self.arrays(self.formula_of(plan)):
            layout[name] = end
            end += -(-count * size // ALIGNMENT) * ALIGNMENT
        return layout, end

    def arrays(self, formula: Formula) -> list[tuple[str, int]]:
        """The arrays that stages may have in scratch memory, and bytes of an element."""
        known = self.scratches.get(formula)
        if known is None:
            known = self.scratches[formula] = [
                each for value in formula.stages.fold_values
                for each in ((f"part{value}", formula.part_bytes(value)), (f"spot{value}", 8))]
        return known
