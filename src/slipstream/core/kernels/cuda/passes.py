"""The whole flat list of passes, from a formula to CUDA C++, to be run and looked at one by one.

The first four make a program of a formula (`fuse.passes`).  The others are what `ProgramKernel`
does: it groups a program once, collapses and schedules it for every new size, and prints what no
earlier plan was printed for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slipstream.core.fuse.passes import PASSES as FORMULA_PASSES
from slipstream.core.fuse.passes import Pass, Work, describe_passes, run_passes
from slipstream.core.fuse.printing import describe
from slipstream.core.kernels.cuda.access import Ints
from slipstream.core.kernels.cuda.programs import AnySpace, ProgramKernel, Ready
from slipstream.core.kernels.cuda.spaces import Reduction
from slipstream.core.kernels.cuda.writing import Formula
from slipstream.core.launch.cuda.launches import KernelCode
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.programs import Program


class CardWork(NamedTuple):
    """What passes hand on for a card: each fills in the field that comes next.

    ``domain`` and ``strides`` (in elements, a tuple for each operand, outputs first) are those of a
    call; ``space``, ``ready`` and ``codes`` as in `ProgramKernel`.
    """

    work: Work
    device: Device
    domain: Ints
    strides: tuple[Ints, ...]
    space: AnySpace | None = None
    kernel: ProgramKernel | None = None
    ready: tuple[Ready, ...] = ()
    codes: tuple[KernelCode, ...] = ()

    @property
    def program(self) -> Program:
        """The program so far."""
        return self.work.program

    def text(self) -> str:
        """What the last pass made, to be read."""
        if self.codes:
            return "\n".join(dict.fromkeys([code.source for code in self.codes]))
        if self.ready:
            return "".join(f"{plan}, grid {shape[0]}, block {shape[1]}, {shape[2]} bytes\n"
                           for plan, _, shape in self.ready)
        if self.kernel is not None and self.space is not None:
            return f"{self.space}\n"
        return grouping(self.kernel) if self.kernel is not None else describe(self.program)


def group(card: CardWork) -> CardWork:
    """Say in which stage each value is computed, and by its bytes what is kept or read again."""
    assert card.work.traced is not None, "there is no program yet"
    return card._replace(kernel=ProgramKernel(card.work.traced.program, card.device))


def collapse(card: CardWork) -> CardWork:
    """Take dims together that the strides of all operands run through alike."""
    assert card.kernel is not None, "the program was not grouped yet"
    traced = card.work.traced
    assert traced is not None, "there is no program yet"
    return card._replace(space=card.kernel.collapse(card.domain, traced.reduced_dims,
                                                    card.strides))


def schedule(card: CardWork) -> CardWork:
    """Choose accesses, threads and blocks of every launch; none where nothing is computed."""
    assert card.kernel is not None, "the program was not grouped yet"
    if card.space is None:
        return card
    return card._replace(ready=tuple(card.kernel.schedule(card.space)))


def print_kernels(card: CardWork) -> CardWork:
    """Write the CUDA C++ of every launch."""
    kernel = card.kernel
    assert kernel is not None, "the program was not grouped yet"
    traced = card.work.traced
    assert traced is not None, "there is no program yet"
    inner = 1
    for dim in traced.reduced_dims:
        inner *= card.domain[dim]
    return card._replace(codes=tuple([kernel.printed(plan, kernel.counted(words, inner))
                                      for plan, words, _ in card.ready]))


def grouping(kernel: ProgramKernel) -> str:
    """The stages of a program's kernels: what each reduces, computes, and finds kept.

    Then those of the program with fewer walks, if there is one.
    """
    text = _grouping(kernel.formula, kernel.reduction)
    if kernel.reduction.brief is None:
        return text
    return (text + "where rows would be read from memory again:\n"
            + _grouping(kernel.brief, kernel.reduction.brief))


def _grouping(formula: Formula, reduction: Reduction) -> str:
    stages = formula.stages
    names = formula.values
    lines = []
    for stage in range(stages.last + 1):
        folds = ", ".join(names[each] for each in stages.folds[stage]) or "nothing"
        full = ", ".join(names[each] for each in stages.full_values(stage)) or "nothing"
        lines.append(f"stage {stage} reduces {folds}; computes {full}")
    kept = ", ".join(names[each] for each in stages.kept()) or "nothing"
    again = ", ".join(names[each] for each in stages.reread()) or "nothing"
    lines.append(f"kept for later stages: {kept} ({reduction.kept_bytes} bytes an element); "
                 f"needed again: {again}")
    return "\n".join(lines) + "\n"


def _on_card(run: Callable[[Any], Any]) -> Callable[[CardWork], CardWork]:
    return lambda card: card._replace(work=run(card.work))


PASSES = (
    *[each._replace(run=_on_card(each.run)) for each in FORMULA_PASSES],
    Pass("group by bytes", "which values each stage computes, keeps and reads again", group),
    Pass("collapse", "dims that all operands run through alike are one", collapse),
    Pass("schedule", "accesses, threads and blocks of every launch", schedule),
    Pass("print", "CUDA C++", print_kernels),
)

__all__ = ["PASSES", "CardWork", "Pass", "collapse", "describe_passes", "group", "grouping",
           "print_kernels", "run_passes", "schedule"]
