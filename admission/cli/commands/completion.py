"""`berth completion`: print a script with which a shell completes Berth's commands and flags."""

from __future__ import annotations

import argparse
import importlib

from admission.cli.common.arguments import Parser, Subparsers, add_command
from admission.cli.common.errors import ExitCode

_SHELLS = ("bash", "zsh", "fish")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "completion",
        help_line="print a script that completes commands and flags in a shell",
        description=(
            "Print a script for bash, zsh or fish that completes Berth's commands, flags and their values.\n"
            "It is static: a completion starts no Python and asks no cluster. Print it again after an\n"
            "upgrade."
        ),
        examples=(
            "  source <(berth completion bash)          # in ~/.bashrc for every session\n"
            '  berth completion zsh > "${fpath[1]}/_berth"\n'
            "  berth completion fish > ~/.config/fish/completions/berth.fish"
        ),
        run=_run,
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell to print it for")


def _run(arguments: argparse.Namespace) -> int:
    # Imported here: no other command needs it.
    import shtab

    print(shtab.complete(_full_parser(), shell=arguments.shell))
    return ExitCode.DONE


def _full_parser() -> Parser:
    """Return the parser with every command in full, which no other command loads."""
    # Imported here, because the entry point imports this module by its name.
    from admission.cli.__main__ import COMMANDS

    parser = Parser(prog="berth")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS.values():
        importlib.import_module(f"admission.cli.commands.{command.module}").add_parser(subparsers)
    return parser
