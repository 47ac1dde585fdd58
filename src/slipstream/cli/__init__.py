"""The command ``slipstream``: each command is a module with a summary, arguments and a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol

import slipstream as ss
from slipstream.cli import budget, demo, doctor, explain, kernels, memory, profile, run, streams


class Command(Protocol):
    """What a module of this package offers to be a command."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it and return the exit status."""


COMMANDS: dict[str, Command] = {"budget": budget, "demo": demo, "doctor": doctor,
                                "explain": explain, "kernels": kernels, "memory": memory,
                                "profile": profile, "run": run}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="slipstream", description="A tensor runtime.")
    parser.add_argument("--version", action="version", version=f"slipstream {ss.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.SUMMARY))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status (2 for a wrong command line, by SystemExit).

    1 where what it prints cannot be written: its reader has gone, or the disk is full.
    """
    streams.mend()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["profile"]:
        words[1:] = profile.prepared(words[1:])
    arguments = build_parser().parse_args(words)
    try:
        status = COMMANDS[arguments.command].run(arguments)
    except BrokenPipeError as error:
        return streams.cut_off(error)
    return streams.flush() or status
