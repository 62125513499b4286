"""The output of `berth get`: a table, all columns, JSON, YAML or names; filtered, sorted, and watched."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar

from admission.answers.api_keys import to_api_keys
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.views.columns import Column, print_rows

OUTPUTS = ("table", "wide", "json", "yaml", "name")
# How often a watched list is read again.
WATCH_SECONDS = 2.0

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Generic[Row]):
    """What a kind shows: its table, the name of a row, and the sentence for an empty list.

    `table` prints rows, and with True all columns.
    """

    table: Callable[[Sequence[Row], bool], None]
    name: Callable[[Row], str]
    none: str


async def show(
    arguments: argparse.Namespace, read: Callable[[], Awaitable[Sequence[Row]]], shown: Shown[Row]
) -> int:
    """Print the rows that `read` returns; with --watch, print those that have changed, until interrupted."""
    rows = chosen(await read(), arguments)
    _print(rows, arguments.output, shown)
    while arguments.watch:
        await asyncio.sleep(WATCH_SECONDS)
        seen, rows = {shown.name(row): _lasting(row) for row in rows}, chosen(await read(), arguments)
        changed = [row for row in rows if seen.get(shown.name(row)) != _lasting(row)]
        if changed:
            _print(changed, arguments.output, shown)
    return ExitCode.DONE


def table_of(columns: Sequence[Column[Row]]) -> Callable[[Sequence[Row], bool], None]:
    """Return what prints a line for each row with these columns."""
    return lambda rows, is_wide: print_rows(rows, columns, is_wide=is_wide)


def chosen(rows: Sequence[Row], arguments: argparse.Namespace) -> Sequence[Row]:
    """Return the rows that the filters leave, sorted as asked. Raises WrongUsageError."""
    if arguments.status:
        wanted = set(arguments.status.split(","))
        rows = [row for row in rows if getattr(row, "status", None) in wanted]
    if arguments.sort_by is None or not rows:
        return rows
    known = {_api_name(field.name): field.name for field in fields(rows[0])}  # type: ignore[arg-type]
    field = known.get(arguments.sort_by.lstrip("."))
    if field is None:
        raise WrongUsageError(
            f"--sort-by {arguments.sort_by} is not a field; known: {', '.join(sorted(known))}"
        )
    # Stable: equal values keep the usual order. Unknown values come last.
    return sorted(rows, key=lambda row: _sortable(getattr(row, field)))


def _sortable(value: Any) -> tuple[bool, Any]:
    return value in (None, ""), "" if value is None else str(value) if not isinstance(
        value, int | float
    ) else value


def _api_name(field: str) -> str:
    return str(next(iter(to_api_keys({field: None}))))


def _lasting(row: Any) -> dict[str, Any]:
    """Return the row without its age, which always changes."""
    return {name: value for name, value in asdict(row).items() if name != "age_seconds"}


def _print(rows: Sequence[Row], output: str, shown: Shown[Row]) -> None:
    if output == "name":
        for row in rows:
            print(shown.name(row))
    elif output in ("json", "yaml"):
        print_bodies([to_api_keys(row) for row in rows], output)
    elif rows:
        shown.table(rows, output == "wide")
    else:
        print(shown.none)


def print_bodies(bodies: Any, output: str) -> None:
    """Print the value as `json` or `yaml`."""
    if output == "json":
        print(json.dumps(bodies, indent=2), flush=True)
        return
    import yaml  # only this output needs it

    print(yaml.safe_dump(bodies, sort_keys=False), end="", flush=True)
