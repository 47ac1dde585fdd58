"""``slipstream run script.py ARGS``: runs a script written for PyTorch on Slipstream.

The script finds the process as ``python script.py ARGS`` would have made it, and slipstream
where it imports ``torch``.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from slipstream import torch_names
from slipstream.cli import streams

SUMMARY = "run a script written for PyTorch: `import torch` gives it slipstream"
CANNOT_OPEN, FAILED, INTERRUPTED = 2, 1, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("script", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS",
                        help="its own arguments, as they are")


def run(arguments: argparse.Namespace) -> int:
    """Run the script as __main__; return the status python would have given.

    SystemExit passes: the interpreter knows its status.
    """
    return run_script(arguments, "run")


def run_script(arguments: argparse.Namespace, command: str) -> int:
    """`run`, for any command that takes a script and its arguments."""
    path = Path(arguments.script).absolute()
    try:
        source = path.read_bytes()
    except OSError as error:
        print(f"slipstream {command}: can't open file '{path}': [Errno {error.errno}] "
              f"{error.strerror}", file=sys.stderr)
        return CANNOT_OPEN
    sys.argv = [arguments.script, *arguments.arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    torch_names.install()
    return execute(source, path)


def run_to_end(arguments: argparse.Namespace, command: str) -> int:
    """`run_script` for a command that prints a report afterwards; the script's exit status.

    With ``arguments.json`` the script prints to standard error: the report alone is the output.
    """
    code: Any = 0
    apart = getattr(arguments, "json", False)
    output = contextlib.redirect_stdout(sys.stderr) if apart else contextlib.nullcontext()
    try:
        with output:
            code = run_script(arguments, command)
    except SystemExit as end:
        code = end.code
    finally:
        streams.mend()
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def without_folder(command: str, **files: str | None) -> bool:
    """Whether a file that is to be written lies in no folder; says so, before a script runs."""
    for option, file in files.items():
        if file and not Path(file).absolute().parent.is_dir():
            print(f"slipstream {command}: --{option} {file}: there is no such folder",
                  file=sys.stderr)
            return True
    return False


def execute(source: bytes, path: Path) -> int:
    """Compile and run ``source`` in a new __main__; errors are shown from its first frame on."""
    main = make_main(path)
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        return show(error)
    return 0


def make_main(path: Path) -> ModuleType:
    """Return a module with what python gives a script, in the place of __main__."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=str(path), __cached__=None, __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", str(path)))
    sys.modules["__main__"] = main
    return main


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
