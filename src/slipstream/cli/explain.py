"""``slipstream explain script.py[:line]``: runs a script and tells what its calls did."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from slipstream.cli import run as run_command
from slipstream.core.api.tracking import LineExplainer

# Lines near the one asked for that are named where it calls no op.
MOST_LINES = 8
SUMMARY = "run a script and tell what each op called at a line did, layer by layer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--line", metavar="FILE:LINE",
                        help="a line of a file that the script imports, looked for from here and "
                             "beside the script")
    run_command.add_arguments(parser)


def split(text: str) -> tuple[str, int]:
    """A script and a line from ``script.py:12``; line 0 where none is named.

    Raises ValueError where what stands behind the colon is no line of the script.
    """
    file, _, line = text.rpartition(":")
    if not Path(file).is_file() or Path(text).exists():
        return (file, int(line)) if file and line.isdecimal() and int(line) else (text, 0)
    count = len(Path(file).read_bytes().splitlines())
    if not line.isdecimal() or not 1 <= int(line) <= count:
        raise ValueError(f"{text}: `{line}` is no line of {file}, which has lines 1 to {count}")
    return file, int(line)


def named(text: str, script: str, line: int) -> tuple[str, int]:
    """The file and line that ``--line`` names.  Raises ValueError where it names none."""
    if line:
        raise ValueError(f"--line {text}: a line is named behind {script} too; name one of them")
    file = text.rpartition(":")[0]
    for place in (Path(file), Path(script).parent / file):
        if place.is_file():
            return split(f"{place}:{text.rpartition(':')[2]}")
    raise ValueError(f"--line {text}: there is no file {file!r} here or beside {script}; it is "
                     "FILE:LINE")


def run(arguments: argparse.Namespace) -> int:
    """Run the script as ``slipstream run`` does; explain behind its output."""
    try:
        arguments.script, line = split(arguments.script)
        file = arguments.script
        if arguments.line:
            file, line = named(arguments.line, arguments.script, line)
    except ValueError as error:
        print(f"slipstream explain: {error}", file=sys.stderr)
        return run_command.CANNOT_OPEN
    if run_command.refused(arguments, "explain"):
        return run_command.CANNOT_OPEN
    seen = LineExplainer(file, line)
    with seen:
        status = run_command.run_to_end(arguments)
    status = run_command.settle(arguments, status)
    sys.stdout.flush()
    tell(seen, arguments, file, line)
    return status


def tell(seen: LineExplainer, arguments: argparse.Namespace, file: str, line: int) -> None:
    """Print the calls."""
    found = seen.explanation()
    if arguments.json:
        print(json.dumps({**found.to_dict(), "counted": seen.counted}, default=str))
        return
    if arguments.failure:
        print(f"\n{arguments.failure}\nThese are the calls until then.", end="")
    where = f"{file}:{line}" if line else file
    below = f", {seen.elsewhere:,} of them in what it calls" if seen.elsewhere else ""
    print(f"\n{seen.counted:,} calls of ops at {where}{below}")
    print(found)
    if not seen.counted and seen.called:
        near = sorted(sorted(seen.called, key=lambda each: abs(each - line))[:MOST_LINES])
        print(f"lines that call ops: {', '.join(map(str, near))}"
              + (", and others" if len(seen.called) > MOST_LINES else ""))
    if seen.counted > len(found.calls):
        print(f"and {seen.counted - len(found.calls):,} more calls, which are not shown")
