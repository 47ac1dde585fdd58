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
from slipstream.core.kernels.cuda.columns import ColumnWriter
from slipstream.core.kernels.cuda.layouts import Cut, Reduction, cut, space_of
from slipstream.core.kernels.cuda.maps import (
    BLOCK,
    MapPlan,
    MapWriter,
    grid_of,
    map_space,
    plan_map,
)
from slipstream.core.kernels.cuda.rows import RowWriter
from slipstream.core.kernels.cuda.stages import LINE, is_map
from slipstream.core.kernels.cuda.tiling import TilePlan, TileWriter, blocks_of, plan_tiles
from slipstream.core.kernels.cuda.turns import ReducePlan
from slipstream.core.kernels.cuda.writing import PACKED, SIZES, Formula
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.programs import FULL, Program
from slipstream.core.vocab.records import Plan

AnyPlan = MapPlan | TilePlan | ReducePlan
Sizes = tuple[int, int, int]
Shape = tuple[Sizes, Sizes, int]
# Arrays in scratch memory begin at multiples of this.
ALIGNMENT = 256


class Stage:
    """A launch that uses scratch memory: ``parts`` are the places of its arrays there.

    ``counts``: its blocks count themselves on the stream's tickets.
    """

    def __init__(self, launch: Launch, parts: tuple[int, ...], counts: bool) -> None:
        self.launch = launch
        self.parts = parts
        self.counts = counts


class Staged:
    """Launches over ``nbytes`` of scratch memory."""

    def __init__(self, stages: list[Stage], nbytes: int) -> None:
        self.stages = stages
        self.nbytes = nbytes


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
        self.maps = is_map(program) and self._alike()
        # By plan, which also tells what words there are in the tail.
        self.codes: dict[AnyPlan, KernelCode] = {}

    def _alike(self) -> bool:
        """Whether all outputs fill the domain, or all have one value a row."""
        levels = {self.program.level_of(output.value) for output in self.program.outputs}
        return len(levels) == 1 or not self.has_rows

    def bind(self, domain: Ints, reduced: Ints, strides: Sequence[Ints]) -> Launch | Staged | None:
        """The launches for sizes and strides (elements, outputs first); None for no elements."""
        if not self.has_rows:
            reduced = ()
        inner = access.count_of([domain[dim] for dim in reduced])
        if self.maps:
            if reduced:
                domain, strides = self._mapped(domain, reduced, strides)
            return None if 0 in domain else self._bind_map(domain, strides, inner)
        space = space_of(self.reduction, domain, reduced, strides)
        if space.rows == 0 or (inner == 0 and not self._has_lines()):
            return None
        return self._bind_reduction(cut(self.reduction, space, self.shared_limit), inner)

    @cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have."""
        properties = drivers.current().properties(self.device.index or 0)
        return int(properties.shared_memory_per_block_optin)

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

    def _bind_map(self, domain: Ints, strides: Sequence[Ints], inner: int) -> Launch:
        space, steps = map_space(domain, strides)
        tiled = plan_tiles(space, steps, self.itemsizes, self.formula.outputs)
        if tiled is not None:
            return self._launch(*tiled, inner, ((blocks_of(tiled[1]), 1, 1), (BLOCK, 1, 1), 0))
        plan, words = plan_map(space, steps, self.itemsizes, self.formula.outputs)
        return self._launch(plan, words, inner, (*grid_of(plan, words["count"][0]), 0))

    def _launch(self, plan: AnyPlan, words: Words, inner: int,
                shape: Shape) -> Launch:
        """A launch of a plan's kernel; ``shape``: sizes of grid and block, shared memory."""
        words = self._counted(words, inner)
        tail = access.packed(words)
        code = self._code(plan, words)
        # As `make_launch` makes it; bindings are made for every new size.
        return Launch(code, modules.function(self.device, code, shape[2]), shape, self.numbers,
                      struct.pack(f"<{len(tail)}q", *tail))

    def _counted(self, words: Words, inner: int) -> Words:
        return {"inner": [inner], **words} if self.formula.counts else words

    def _code(self, plan: AnyPlan, words: Words) -> KernelCode:
        """The text of a plan's kernel; ``words`` tell what its tail holds."""
        code = self.codes.get(plan)
        if code is None:
            writer = self._writer(plan)(self.formula, plan, words)
            code = KernelCode(self.formula.name, writer.text()).made_by(writer.fusion)
            self.codes[plan] = code
        return code

    def _bind_reduction(self, cuts: list[Cut], inner: int) -> Launch | Staged:
        if cuts[0].plan.stage < 0:
            return self._launch_cut(cuts[0], inner)
        layout, nbytes = self._scratch(cuts[0])
        modules.prepare(self.device, [self._code(each.plan, self._counted(each.words, inner))
                                      for each in cuts])
        stages = []
        for each in cuts:
            writer = self._writer(each.plan)(self.formula, each.plan, each.words)
            parts = tuple([layout[name] for _, _, name in writer.parts()])
            stages.append(Stage(self._launch_cut(each, inner), parts, writer.joins))
        return Staged(stages, nbytes)

    @staticmethod
    def _writer(plan: AnyPlan) -> Any:
        if isinstance(plan, TilePlan):
            return TileWriter
        if isinstance(plan, MapPlan):
            return MapWriter
        return ColumnWriter if plan.columns else RowWriter

    def _launch_cut(self, each: Cut, inner: int) -> Launch:
        shape = ((each.blocks, each.chunks, 1), (*each.block, 1), each.shared)
        return self._launch(each.plan, each.words, inner, shape)

    def _scratch(self, first: Cut) -> tuple[dict[str, int], int]:
        """Where each array lies in scratch memory, and how much there is in all."""
        words = first.words
        count = words["rows"][0] * words["chunks"][0] * words.get("columns", [1])[0]
        layout = {}
        end = 0
        for value in self.formula.stages.fold_values:
            for name, size in ((f"part{value}", SIZES[self.formula.stages.step(value).cls]),
                               (f"spot{value}", 8)):
                layout[name] = end
                end += -(-count * size // ALIGNMENT) * ALIGNMENT
        return layout, end

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Record the launches."""
        bound = plan.binding
        backend: Any = plan.backend
        if isinstance(bound, Launch):
            backend.record_operands(bound, operands, numbers)
        elif bound is not None:
            self._run_staged(backend, bound, operands, numbers)

    @staticmethod
    def _run_staged(backend: Any, bound: Staged, operands: tuple[Any, ...],
                    numbers: tuple[Any, ...]) -> None:
        addresses = tuple([each.storage.address + each.offset * each.spec.itemsize
                           for each in operands])
        storage = backend.scratch(bound.nbytes)
        for stage in bound.stages:
            parts = tuple([storage.address + place for place in stage.parts])
            if stage.counts:
                parts = (*parts, backend.tickets())
            backend.record(stage.launch, addresses + parts, numbers)
