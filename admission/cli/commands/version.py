"""`berth version`."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import ExitCode

DISTRIBUTION = "berth-queue"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    add_command(
        subparsers,
        "version",
        help_line="print Berth's version",
        description="Print the versions of Berth and Python.",
        examples="  berth version",
        run=_run,
    )


def _run(_: argparse.Namespace) -> int:
    print(f"berth {version()} (Python {platform.python_version()})")
    return ExitCode.DONE


def version() -> str:
    """Return the installed version, or "unknown" in a source tree that is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
