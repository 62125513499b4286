"""`berth crds`: print the CustomResourceDefinitions, to apply with kubectl or to read."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Sequence

from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import ExitCode, WrongUsageError
from api.definitions.crds import KINDS, Kind, crd, crd_yaml


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "crds",
        help_line="print the CustomResourceDefinitions",
        description=(
            "Print the CustomResourceDefinitions of all kinds, or of the given ones. They serve v1beta2\n"
            "alone; those of deploy/crds serve v1beta1 too, which a controller in the cluster converts."
        ),
        examples=(
            "  berth crds | kubectl apply --server-side -f -\n"
            "  berth crds clusterqueue localqueue\n"
            "  berth crds -o json workloads"
        ),
        run=_run,
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="kind, plural or short name (default: all)")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def _run(arguments: argparse.Namespace) -> int:
    kinds = find_kinds(arguments.kinds)
    if arguments.output == "json":
        items = [crd(kind) for kind in kinds]
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=2)
        print()
    else:
        for kind in kinds:
            print(f"---\n{crd_yaml(kind)}", end="")
    return ExitCode.DONE


def find_kinds(words: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds that `words` name, each once; without words all kinds. Raises WrongUsageError."""
    names = _names()
    for word in words:
        if word.lower() not in names:
            raise WrongUsageError(_unknown(word, names))
    chosen = {names[word.lower()].name for word in words}
    return tuple(kind for kind in KINDS if kind.name in chosen or not words)


def _names() -> dict[str, Kind]:
    """Return every name of each kind that kubectl accepts, and the name of its definition."""
    return {
        name: kind
        for kind in KINDS
        for name in (
            kind.name.lower(),
            kind.plural,
            f"{kind.plural}.{kind.group}",
            *kind.short_names,
        )
    }


def _unknown(word: str, names: dict[str, Kind]) -> str:
    nearest = difflib.get_close_matches(word.lower(), names, n=1)
    meant = f"did you mean {nearest[0]}? " if nearest else ""
    return f"no kind {word!r}: {meant}Berth has {', '.join(kind.name for kind in KINDS)}"
