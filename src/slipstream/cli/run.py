"""``slipstream run script.py ARGS``: runs a script written for PyTorch on Slipstream.

The script finds the process as ``python script.py ARGS`` would have made it, and slipstream
where it imports ``torch``.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from slipstream import torch_names
from slipstream.cli import streams
from slipstream.core.api.profiling import finish

SUMMARY = "run a script written for PyTorch: `import torch` gives it slipstream"
CANNOT_OPEN, FAILED, INTERRUPTED = 2, 1, 130
# Letters of an error that are said again above a report.
MOST_SAID = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("script", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS",
                        help="its own arguments, as they are")


def run(arguments: argparse.Namespace) -> int:
    """Run the script as __main__; return the status python would have given.

    SystemExit passes: the interpreter knows its status.
    """
    return refused(arguments, "run") or run_script(arguments)


def refused(arguments: argparse.Namespace, command: str, *outputs: str) -> int:
    """Read the script and look at the files that are to be written, before anything runs.

    0, or the status where one cannot be opened, which is said.  What is found stays in
    ``arguments``: ``path`` and ``source`` of the script, and ``files``, the path of each output
    that was asked for.  The script may change the folder, or move itself: nothing is looked up
    by a relative path once it runs.
    """
    arguments.path = path = Path(arguments.script).absolute()
    try:
        arguments.source = path.read_bytes()
    except OSError as error:
        print(f"slipstream {command}: can't open file '{path}': [Errno {error.errno}] "
              f"{error.strerror}", file=sys.stderr)
        return CANNOT_OPEN
    wanted = {name: file for name in outputs if (file := getattr(arguments, name))}
    arguments.files = {name: Path(file).absolute() for name, file in wanted.items()}
    for name, file in wanted.items():
        reason = precious(arguments.files[name], path) or unwritable(arguments.files[name])
        if reason:
            print(f"slipstream {command}: --{name} {file}: cannot be written: {reason}",
                  file=sys.stderr)
            return CANNOT_OPEN
    return 0


def unwritten(arguments: argparse.Namespace, command: str, name: str,
              write: Callable[[Any], Any]) -> bool:
    """Write a file that was asked for; whether that failed by now, which is said."""
    try:
        write(arguments.files[name])
    except OSError as error:
        print(f"slipstream {command}: --{name} {getattr(arguments, name)}: cannot be written: "
              f"{error.strerror or error}", file=sys.stderr)
        return True
    return False


def run_script(arguments: argparse.Namespace) -> int:
    """`run`, for any command that takes a script and its arguments; `refused` comes first."""
    path = arguments.path
    sys.argv = [arguments.script, *arguments.arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    torch_names.install()
    failure = execute(arguments.source, path)
    if failure is None:
        return 0
    arguments.failure = failure_text(arguments.script, path, failure)
    arguments.broken = isinstance(failure, Exception)
    return show(failure)


def run_to_end(arguments: argparse.Namespace) -> int:
    """`run_script` for a command that prints a report afterwards; the script's exit status.

    With ``arguments.json`` the script prints to standard error: the report alone is the output.
    ``arguments.failure`` says how the script ended too early, or is empty; ``arguments.broken``:
    whether an error ended it, so that what it did is not all that it should have done.
    Raises SystemExit in a child that the script forked, when it ends.
    """
    code: Any = 0
    process = os.getpid()
    arguments.failure, arguments.broken = "", False
    apart = getattr(arguments, "json", False)
    output = contextlib.redirect_stdout(sys.stderr) if apart else contextlib.nullcontext()
    try:
        with output, streams.restored():
            code = run_script(arguments)
    except SystemExit as end:
        code = end.code
        if code is not None and code != 0:
            arguments.failure = failure_text(arguments.script, arguments.path, end)
    finally:
        streams.mend()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    if os.getpid() != process:
        # A child that the script forked came to its end: the report is its parent's.
        raise SystemExit(code)
    return code or 0


def settle(arguments: argparse.Namespace, status: int) -> int:
    """Wait for what the script left to the cards it used; the status, of an error there."""
    try:
        finish()
    except Exception as error:
        return late(arguments, error)
    return status


def late(arguments: argparse.Namespace, error: Exception) -> int:
    """Show the error of a kernel which the script did not wait for: it names the line."""
    status = show(error.with_traceback(None))
    # What ended the script before is what cut it short.
    if not arguments.failure:
        arguments.failure = failure_text(arguments.script, arguments.path, error)
    arguments.broken = True
    return status


def precious(file: Path, script: Path) -> str:
    """Why a file must not be written over: where the name of an output is left out, the script
    stands in its place.  Empty where it may be."""
    if file.exists() and (file.suffix == ".py" or file.samefile(script)):
        return "it is a script; the file to write stands before the script"
    return ""


def unwritable(file: Path) -> str:
    """Why a file that is to be written later cannot be; empty where it can."""
    if not file.parent.is_dir():
        return "there is no such folder"
    if file.exists() and not file.is_file():
        # A device, or a pipe, whose other end an attempt would wait for.
        return "it is a folder" if file.is_dir() else ""
    new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if new:
            file.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def execute(source: bytes, path: Path) -> BaseException | None:
    """Compile and run ``source`` in a new __main__; return the error that ended it."""
    main = make_main(path)
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        return error
    return None


def make_main(path: Path) -> ModuleType:
    """Return a module with what python gives a script, in the place of __main__."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=str(path), __cached__=None, __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", str(path)))
    sys.modules["__main__"] = main
    return main


def failure_text(script: str, path: Path, error: BaseException) -> str:
    """How an error ended a script, and at which of its lines."""
    line = line_of(path, error)
    where = f" at line {line}" if line else ""
    if isinstance(error, KeyboardInterrupt):
        return f"{script} was interrupted{where}"
    # An error of ours goes on with operands and mend: they were shown with the error itself.
    said = str(error).partition("\n")[0]
    said = said if len(said) <= MOST_SAID else said[:MOST_SAID - 1] + "…"
    if isinstance(error, SystemExit):
        # Any other object is said, and the status is 1.
        status = said if isinstance(error.code, int) else f"{FAILED}: {said}"
        return f"{script} ended{where} with exit status {status}"
    return f"{script} failed{where}: {type(error).__name__}{': ' if said else ''}{said}"


def line_of(path: Path, error: BaseException) -> int:
    """The innermost line of a script that an error passed; 0 where it passed none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    if not line and isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno or 0
    # An error of a card's is raised later, and tells of the line that launched.
    told = re.search(rf"at {re.escape(str(path))}:(\d+)", str(error))
    return int(told[1]) if told and isinstance(error, IndexError) else line


def show(error: BaseException) -> int:
    """Hand an error to the excepthook, without the frames of this module; return the status."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    torch_names.explain_missing(error)
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def is_ours(code: CodeType) -> bool:
    """Tell whether a frame is of this module."""
    return code.co_filename == __file__
