"""The entry point of `berth`: find the command, run it, and map its end to an exit code and one sentence.

Only the module of the requested command is imported. Help and `berth crds` therefore answer at once, and a
broken dependency of one command does not break the others.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from admission.cli.common.arguments import Parser
from admission.cli.common.errors import ExitCode, describe, is_broken_pipe
from admission.cli.common.loading import load

_DESCRIPTION = "Berth decides which suspended Job runs next on a shared GPU cluster. It speaks Kueue's API."
_EPILOG = """start here:
  berth demo                                       everything on this machine, in under two minutes
  berth COMMAND --help                             flags and examples of a command

exit codes: 0 success, 1 the answer is negative, 2 wrong usage or input,
3 API server or store unreachable or refusing, 130 interrupted"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command's module and its line in the list of commands."""

    module: str
    help_line: str


COMMANDS = {
    "demo": Command("demo", "run everything on this machine, with nothing else installed"),
    "controller": Command("controller", "admit the Jobs of a cluster"),
    "decide": Command("decide", "show decisions for a cluster described in files, offline"),
    "replay": Command("replay", "run a recorded trace as real Jobs and report on it"),
    "simulate": Command("simulate", "run a recorded trace on a virtual clock and compare policies"),
    "get": Command("get", "list queues and Workloads of a cluster, and why they wait"),
    "explain": Command("explain", "show why a Workload waits: every flavor, domain and node with its counts"),
    "usage": Command("usage", "show GPU-hours used, waited for and lost, by queue, namespace or user"),
    "policy": Command("policy", "show an AdmissionPolicy as it is in force, with what it inherits"),
    "page": Command("page", "open the page of a controller in a browser"),
    "mcp": Command("mcp", "answer assistants and CI by the Model Context Protocol, read-only"),
    "stop": Command("stop", "stop a Job and give its quota back"),
    "resume": Command("resume", "let a stopped Job queue again, or a stopped queue admit again"),
    "hold": Command("hold", "keep a waiting Job from starting, or a queue from admitting"),
    "drain": Command("drain", "stop a queue and all that runs in it"),
    "priority": Command("priority", "give a Job another WorkloadPriorityClass"),
    "cancel": Command("cancel", "delete a Job, its pods and its Workload"),
    "doctor": Command("doctor", "show the topology of a cluster, and what keeps Jobs from starting"),
    "store": Command("store", "dump, check or rebuild what Redis holds"),
    "apiserver": Command("apiserver", "run only the embedded API server with simulated nodes"),
    "extender": Command("extender", "run only the scheduler extender for kube-scheduler"),
    "node-agent": Command(
        "node_agent", "label this node by its GPUs, and its pods by the GPUs that they have"
    ),
    "convert": Command("convert", "convert manifests from Kueue's v1beta1 to v1beta2"),
    "crds": Command("crds", "print the CustomResourceDefinitions"),
    "completion": Command("completion", "print a script that completes commands and flags in a shell"),
    "version": Command("version", "print Berth's version"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Raises nothing.

    `argv` excludes the program's name; None means the arguments of this process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # This must precede all output, error messages included.
    _replace_what_cannot_be_printed()
    try:
        code = _run(arguments)
        # Flush here: at the interpreter's exit, a closed pipe could not be distinguished from a fault.
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse, after --help
        return leaving.code if isinstance(leaving.code, int) else ExitCode.WRONG_USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if not is_broken_pipe(error):
            return _report(error, arguments)
        # The reader (`| head`) closed the pipe. Without this, Python would report the closed pipe again when
        # it flushes stdout at exit.
        _discard_stdout()
        return ExitCode.DONE


def make_parser(arguments: Sequence[str]) -> Parser:
    """Return the parser. Only the command that `arguments` name is loaded in full."""
    parser = Parser(
        prog="berth",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    # Loading all commands would delay the help text by a second.
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    # Help and errors list the others. They take a tenth of a short command's time.
    is_first = bool(arguments) and arguments[0] in COMMANDS
    for name, command in COMMANDS.items():
        if name == chosen:
            load(f"admission.cli.commands.{command.module}").add_parser(subparsers)
        elif not is_first:
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
    """Print one sentence about the error on stderr and return its exit code."""
    message, code = describe(error)
    # Name the command, so that a line in a shared log shows its origin.
    name = " ".join(["berth", *[word for word in arguments[:1] if word in COMMANDS]])
    _say(f"{name}: {message}")
    return code


def _say(sentence: str) -> None:
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def _replace_what_cannot_be_printed() -> None:
    """Print `?` for characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_stdout() -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
