"""`berth`: finds the command, runs it, and turns every end into an exit code and at most one sentence.

Only the module of the command that is run is imported, so that help and `berth crds` answer at once and one
command's broken dependency does not take the others down.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from admission.cli.common.arguments import Parser
from admission.cli.common.errors import ExitCode, describe, is_broken_pipe

_DESCRIPTION = "Berth decides which suspended Job runs next on a shared GPU cluster. It speaks Kueue's API."
_EPILOG = """start here:
  berth demo                                       everything on this machine, in under two minutes
  berth COMMAND --help                             flags and examples of a command

exit codes: 0 done, 1 what was asked does not hold, 2 wrong usage or input,
3 API server or store unreachable or refusing, 130 interrupted"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command's module and its line in the list of commands."""

    module: str
    help_line: str


COMMANDS = {
    "demo": Command("demo", "the main job on one machine, with nothing else installed"),
    "controller": Command("controller", "the real thing: admit the Jobs of a cluster"),
    "decide": Command("decide", "decisions for a cluster described in files, offline"),
    "replay": Command("replay", "a recorded trace as real Jobs, with a report"),
    "simulate": Command("simulate", "a recorded trace on a virtual clock, policy beside policy"),
    "get": Command("get", "queues and workloads of a cluster, and why they wait"),
    "explain": Command("explain", "why a Workload waits: every flavor, domain and node with its counts"),
    "doctor": Command("doctor", "what a cluster's nodes say about its topology, and what is in the way"),
    "store": Command("store", "what Redis holds: dump it, check it, rebuild it"),
    "apiserver": Command("apiserver", "the embedded API server with simulated nodes alone"),
    "extender": Command("extender", "the scheduler extender alone, beside kube-scheduler"),
    "convert": Command("convert", "manifests of Kueue's v1beta1, said in v1beta2"),
    "crds": Command("crds", "print the CustomResourceDefinitions"),
    "version": Command("version", "print Berth's version"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit code. Raises nothing."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Before anything is printed, errors included.
    _replace_what_cannot_be_printed()
    try:
        code = _run(arguments)
        # Here and not by the interpreter's end, where a closed pipe could no longer be told from a fault.
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse, after --help
        return leaving.code if isinstance(leaving.code, int) else ExitCode.WRONG_USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if not is_broken_pipe(error):
            return _report(error, arguments)
        # The reader (`| head`) has what it wanted. Python would complain once more when it closes stdout.
        _discard_stdout()
        return ExitCode.DONE


def make_parser(arguments: Sequence[str]) -> Parser:
    """Return the parser; of the commands only the one that `arguments` name is loaded in full."""
    parser = Parser(
        prog="berth",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    # Loading all commands would take a second before the first word of help.
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name == chosen:
            importlib.import_module(f"admission.cli.commands.{command.module}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=command.help_line)
    return parser


def _run(arguments: Sequence[str]) -> int:
    parser = make_parser(arguments)
    if not arguments:
        parser.print_help()
        return ExitCode.WRONG_USAGE
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Say on stderr what went wrong and return the exit code for it."""
    message, code = describe(error)
    # The command's own name, so that a line in a log of many tells who wrote it.
    name = " ".join(["berth", *[word for word in arguments[:1] if word in COMMANDS]])
    _say(f"{name}: {message}")
    return code


def _say(sentence: str) -> None:
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def _replace_what_cannot_be_printed() -> None:
    """Print `?` for a sign that the terminal's encoding does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_stdout() -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
