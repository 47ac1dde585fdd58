"""``slipstream profile script.py ARGS``: runs a script and says where its time went."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

import slipstream as ss
from slipstream.cli import run as run_command
from slipstream.profiler.tables import SORTS

SUMMARY = "run a script and say where its time went, and what it is bound by"
TABLE_ROWS = 20
UNTIL = "The figures cover only what ran until then."
COLUMN = "cpu_time_total"
# Options that take the next word.
TAKING = ("--html", "--trace", "--stacks", "--table", "--records")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("--html", metavar="FILE", help="write a page with timeline and flame graph")
    parser.add_argument("--trace", metavar="FILE",
                        help="write a trace for Chrome or Perfetto (.json or .json.gz)")
    parser.add_argument("--stacks", metavar="FILE", help="write stacks for flame graphs")
    parser.add_argument("--table", metavar="COLUMN", nargs="?", const=COLUMN,
                        choices=tuple(SORTS),
                        help="print the table of ops too, sorted by a column: "
                             f"{', '.join(SORTS)} (by the host's time where none is named)")
    parser.add_argument("--records", type=int, default=1 << 18,
                        help="how many records are kept (262144); older ones are only counted")
    parser.add_argument("--every-kernel", action="store_true",
                        help="time each kernel by itself, where otherwise most take the mean of "
                             "some; a replayed op costs the host about 0.7 µs more")
    run_command.add_arguments(parser)


def prepared(words: list[str]) -> list[str]:
    """The words of a command line, where ``--table`` does not take the script for its column."""
    for place, word in enumerate(words[:-1]):
        if not word.startswith("--"):
            # The script: what follows is its own.
            if place == 0 or words[place - 1] not in TAKING:
                break
        elif word == "--table":
            after = words[place + 1]
            if after not in SORTS and (after.endswith(".py") or Path(after).exists()):
                return [*words[:place], f"--table={COLUMN}", *words[place + 1:]]
    return words


def run(arguments: argparse.Namespace) -> int:
    """Run the script as ``slipstream run`` does; print the page of text after its output."""
    if run_command.refused(arguments, "profile", "html", "trace", "stacks"):
        return 2
    whole = bool(arguments.stacks or arguments.html)
    seen = ss.profiler.profile(with_stack=whole, profile_memory=bool(arguments.html),
                               records=arguments.records, every_kernel=arguments.every_kernel)
    seen.gives_way = functools.partial(give_way, arguments)
    try:
        seen.start()
    except ValueError as error:
        print(f"slipstream profile: --records: {error}", file=sys.stderr)
        return 2
    arguments.gave_way = False
    status = run_command.run_to_end(arguments)
    if arguments.gave_way:
        return status
    try:
        seen.stop()
    except Exception as error:
        status = run_command.late(arguments, error)
    if arguments.failure:
        seen.recorded().failed = f"{arguments.failure}\n{UNTIL}"
        seen.recorded().broken = arguments.broken
    return tell(seen, arguments) or status


def give_way(arguments: argparse.Namespace) -> None:
    """The script has a profile of its own: that one runs, and there is no page of what is left."""
    arguments.gave_way = True
    files = "".join(f", no {path}" for path in arguments.files.values())
    print(f"slipstream profile: {arguments.script} makes a profile of its own, which takes the "
          f"place of this one: there is no page{files}; `slipstream run` runs it alone",
          file=sys.stderr)


def tell(seen: ss.profiler.profile, arguments: argparse.Namespace) -> int:
    """Print the page and write the files that were asked for; 0, or the status where one cannot
    be written any more, as on a disk that is full by now: the others are."""
    print(f"\n{seen.report()}")
    if arguments.table:
        print(seen.key_averages().table(sort_by=arguments.table, row_limit=TABLE_ROWS))
    status = 0
    for name, title, write in (("trace", "trace", seen.export_chrome_trace),
                               ("stacks", "stacks", seen.export_stacks),
                               ("html", "page", seen.export_html)):
        if name not in arguments.files:
            continue
        if run_command.unwritten(arguments, "profile", name, write):
            status = run_command.FAILED
        else:
            print(f"{title}: {getattr(arguments, name)}")
    return status
