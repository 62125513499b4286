"""docs/cli.md, made from the parsers of the commands: `python -m tests.cli_reference` writes it again."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from admission.cli.__main__ import COMMANDS

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
_HEAD = """# Commands

This page is generated from the commands' own help. Their exit codes are under
[Troubleshooting](troubleshooting.md#exit-codes)."""


def render() -> str:
    """Return the page. It does not depend on the terminal, nor on argparse's own layout."""
    return "\n".join([_HEAD, *(line for name in COMMANDS for line in _section(name))]) + "\n"


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    subparsers = argparse.ArgumentParser(prog="berth").add_subparsers()
    importlib.import_module(f"admission.cli.commands.{COMMANDS[command].module}").add_parser(subparsers)
    return subparsers.choices[command]


def flags_of(command: str) -> set[str]:
    """Return every flag that a command takes, short ones included."""
    return {flag for action in parser_of(command)._actions for flag in action.option_strings}


def _section(name: str) -> Iterator[str]:
    parser = parser_of(name)
    yield from ("", f"## berth {name}", "", parser.description or "", "")
    rows = [_row(action) for action in parser._actions if action.dest != "help"]
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")
    examples = (parser.epilog or "").removeprefix("examples:\n").splitlines()
    yield from ("```console", *(f"$ {line.strip()}" for line in examples), "```")


def _row(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "berth"}
    if action.choices is not None:
        text = f"{text}; one of {', '.join(map(str, action.choices))}".removeprefix("; ")
    return f"| `{_name(action)}` | {text} |"


def _name(action: argparse.Action) -> str:
    shown = action.metavar if isinstance(action.metavar, str) else action.dest
    shown = shown.replace("|", " or ")
    if not action.option_strings:
        return shown
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = shown if isinstance(action.metavar, str) else "WORD"
    return f"{names} {value}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
