"""``slipstream budget``: what an op costs the host and the device, and which of them waits.

``slipstream budget script.py`` measures a program; ``--ops 120 --dispatch-us 10 --gpu-us 4``
computes by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from slipstream.cli.run import late, refused, run_to_end
from slipstream.core.api.budget import LAUNCH, REPLAYED, Budget, Measured, measure_budget

SUMMARY = "say whether a program is CPU-bound or GPU-bound, by how much, and what replay would do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("--json", action="store_true",
                        help="print the report as JSON; the script's output goes to stderr")
    parser.add_argument("--ops", type=positive, help="by hand: ops in a step")
    parser.add_argument("--dispatch-us", type=positive_us,
                        help="by hand: microseconds that the host takes for an op")
    parser.add_argument("--gpu-us", type=positive_us,
                        help="by hand: microseconds that the device takes for an op")
    parser.add_argument("script", nargs="?", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS",
                        help="its own arguments, as they are")


def positive(text: str) -> int:
    """An argument that is an integer above 0."""
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def positive_us(text: str) -> float:
    """An argument that is a number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Measure or compute, print; the status is the script's, or 2 for a wrong command line."""
    by_hand = (arguments.ops, arguments.dispatch_us, arguments.gpu_us)
    if arguments.script is None:
        if None in by_hand:
            print("slipstream budget: give a script, or all of --ops, --dispatch-us, --gpu-us",
                  file=sys.stderr)
            return 2
        budget = Budget(*by_hand)
        print(json.dumps(budget.facts(), indent=2) if arguments.json else by_hand_text(budget))
        return 0
    if any(each is not None for each in by_hand):
        print("slipstream budget: a script is measured; --ops, --dispatch-us and --gpu-us are "
              "without one", file=sys.stderr)
        return 2
    if refused(arguments, "budget"):
        return 2
    with measure_budget() as found:
        status = run_to_end(arguments)
    if found.failure is not None:
        status = late(arguments, found.failure)
    if arguments.failure and not arguments.json:
        print(f"{arguments.failure}\nThe figures cover only what ran until then.")
    print(json.dumps(facts_of(found), indent=2) if arguments.json else measured_text(found))
    return status


def budget_of(found: Measured) -> Budget | None:
    """The budget of what was measured on a card; None where no card was, or nothing was timed."""
    if not (found.ops and found.launches and found.timed):
        return None
    host = max(found.elapsed - found.waited, 0.0) / found.ops
    device = found.device / found.timed * found.launches / found.ops
    host, device = max(host, 1e-3), max(device, 1e-3)
    alone = (found.launches - found.replayed) / found.ops
    return Budget(found.ops, host, device, min(alone * LAUNCH, host / 2))


def facts_of(found: Measured) -> dict[str, Any]:
    """What was measured, as plain data; times in microseconds."""
    facts: dict[str, Any] = {
        "ran_on": found.device_name, "simulated": found.simulated, "ops": found.ops,
        "launches": found.launches, "elapsed_us": found.elapsed, "waited_us": found.waited,
        "replayed_share": found.replayed / found.launches if found.launches else None,
    }
    budget = budget_of(found)
    if budget is not None:
        return facts | budget.facts() | {"device_time_includes_gaps": found.alone}
    kernels = min(kernel_us(found), whole_us(found))
    return facts | {"us_per_op": whole_us(found), "kernel_us_per_op": kernels,
                    "verdict": cpu_verdict(found)}


def whole_us(found: Measured) -> float:
    """Microseconds of the host for an op."""
    return found.elapsed / found.ops if found.ops else 0.0


def kernel_us(found: Measured) -> float:
    """Microseconds of an op's kernel on the CPU."""
    return found.kernels / found.listened if found.listened else 0.0


def on_card(found: Measured) -> bool:
    """Whether a card took part; its launches may have gone out behind the last look."""
    return bool(found.launches) or found.device_name != Measured.device_name


def cpu_verdict(found: Measured) -> str:
    """Which part decides on the CPU."""
    if not found.ops:
        return "no ops"
    if on_card(found) or not found.listened:
        return "too short to tell"
    return "kernel-bound" if 2 * kernel_us(found) > whole_us(found) else "dispatch-bound"


def by_hand_text(budget: Budget) -> str:
    """The computed budget as lines."""
    return "\n".join([
        f"computed: a step of {budget.ops:,.0f} ops, {budget.host:g} µs of the host and "
        f"{budget.device:g} µs of the device each",
        f"  host    {budget.ops * budget.host:>10,.1f} µs",
        f"  device  {budget.ops * budget.device:>10,.1f} µs",
        *verdict_lines(budget),
    ])


def verdict_lines(budget: Budget) -> list[str]:
    """Which side waits, by how much, and what replay would make of it."""
    lines = [budget.words(), f"  a step as it is           {budget.step:>12,.1f} µs"]
    lines += [f"  {name:<25} {step:>12,.1f} µs, {gain}" for name, step, gain in budget.outcomes()]
    basis = (f"{REPLAYED} µs of the host an op" if budget.saved is None else
             f"{LAUNCH} µs less for each launch that went out alone")
    lines.append(f"  (windows replayed: {basis}, as measured on an H100 machine; one graph: "
                 "cuda.graph() or make_graphed_callables())")
    if budget.verdict == "GPU-bound":
        lines.append("  what helps: fewer bytes and operations on the device: a narrower dtype, "
                     "fused ops, larger tiles")
    return lines


def measured_text(found: Measured) -> str:
    """What was measured, as lines."""
    if not found.ops:
        return "no op ran: there is nothing to measure"
    lines = [f"ran on {found.device_name}; taken: {found.ops:,} ops in {found.elapsed / 1e3:,.1f} "
             f"ms, of which the host waited {found.waited / 1e3:,.1f} ms"]
    budget = budget_of(found)
    if budget is None:
        return "\n".join(lines + cpu_lines(found))
    if found.simulated:
        lines.append("  a simulated card: its time is virtual, and the host's holds the "
                     "simulation's; the verdict is no real card's")
    share = 100 * found.replayed / found.launches
    lines += [f"  host    {budget.host:>8.2f} µs an op (Python, dispatch, launches; no waits)",
              f"  device  {budget.device:>8.2f} µs an op"
              + (" at most: nothing was replayed, gaps between launches count" if found.alone
                 else " (windows that were replayed)"),
              f"  {found.launches:,} launches, {share:.0f} % of them replayed"]
    lines += verdict_lines(budget)
    if share < 90 and budget.verdict == "CPU-bound":
        lines.append(f"  {100 - share:.0f} % went out one by one, about {budget.saved:.1f} µs an "
                     "op; cuda.launch_stats()['single'] says why")
    return "\n".join(lines)


def cpu_lines(found: Measured) -> list[str]:
    """The verdict where no card took part."""
    whole, kernel = whole_us(found), kernel_us(found)
    if on_card(found):
        return ["  too short to tell: no stretch of the run was measured whole; run more steps"]
    lines = [f"  the CPU did all of it: {whole:.2f} µs an op"]
    if not found.listened:
        return [*lines, "  too short to tell kernels from dispatch, of which those of the main "
                "thread alone are heard: run more steps"]
    kernel = min(kernel, whole)
    rest = whole - kernel
    lines += [f"  kernels {kernel:>8.2f} µs an op", f"  the rest {rest:>7.2f} µs an op (Python, "
              "dispatch, the script's own work)"]
    if cpu_verdict(found) == "dispatch-bound":
        lines.append(f"dispatch-bound: {100 * rest / whole:.0f} % of the time is no kernel's; "
                     "larger tensors, or fewer and larger ops help; there is no replay "
                     "on the CPU")
    else:
        lines.append(f"kernel-bound: {100 * kernel / whole:.0f} % of the time is kernels'; a card "
                     f"is worth while where it takes less than {kernel:.1f} µs an op; there is no "
                     "replay on the CPU")
    return lines
