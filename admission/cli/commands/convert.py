"""`berth convert`: convert manifests from kueue.x-k8s.io/v1beta1 to v1beta2.

Berth serves only v1beta2. Everything is read and checked before anything is printed, so that a pipe into
`kubectl apply` receives all objects or none. Objects of other groups are printed unchanged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from admission.cli.common.arguments import Subparsers, add_command, add_manifests
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.manifest_files import Document, read_documents
from api.definitions.conversion import NEW_VERSION, OLD_VERSION, convert, dropped
from api.validation import validate

_KUEUE = "kueue.x-k8s.io/"
_WIDTH = 110


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "convert",
        help_line="convert manifests from Kueue's v1beta1 to v1beta2",
        description=(
            "Read manifests of kueue.x-k8s.io/v1beta1 and print them in v1beta2. Objects of other groups\n"
            "and those already in v1beta2 are printed unchanged. Fields without a counterpart are omitted\n"
            "and named on stderr. If there are faults, all of them are reported by file, document and\n"
            "field, and nothing is printed. Comments are not kept."
        ),
        examples=(
            "  berth convert -f queues.yaml > queues-v1beta2.yaml\n"
            "  berth convert -f manifests/ | kubectl apply --dry-run=server -f -\n"
            "  kubectl get clusterqueues.v1beta1.kueue.x-k8s.io -o yaml | berth convert -f -"
        ),
        run=_run,
    )
    add_manifests(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.filename:
        raise WrongUsageError("nothing to convert: give manifests with -f FILE (- for stdin)")
    documents = read_documents(arguments.filename, sys.stdin)
    faults = [fault for document in documents for fault in _faults(document)]
    for fault in faults:
        print(f"berth convert: {fault}", file=sys.stderr)
    if faults:
        return ExitCode.WRONG_USAGE
    for document in documents:
        for place, obj in _objects(document):
            for path in dropped(obj):
                print(f"berth convert: {place}: {path} has no counterpart and is left out", file=sys.stderr)
    _print([convert(document.value) for document in documents], arguments.output)
    return ExitCode.DONE


def _print(converted: list[Mapping[str, Any]], output: str) -> None:
    if output == "yaml":
        for one in converted:
            text = yaml.safe_dump(dict(one), sort_keys=False, allow_unicode=True, width=_WIDTH)
            print(f"---\n{text}", end="")
        return
    whole = converted[0] if len(converted) == 1 else {"apiVersion": "v1", "kind": "List", "items": converted}
    json.dump(whole, sys.stdout, indent=2)
    print()


def _faults(document: Document) -> Iterator[str]:
    """Yield the faults that prevent a conversion, or that the API server would reject afterwards."""
    for place, obj in _objects(document):
        kind, version = obj.get("kind"), obj.get("apiVersion")
        if not isinstance(kind, str) or not isinstance(version, str):
            yield f"{place}: expected an object with apiVersion and kind"
        elif version.startswith(_KUEUE) and version not in (OLD_VERSION, NEW_VERSION):
            yield f"{place}: apiVersion is {version}: only {OLD_VERSION} is converted"
        else:
            for error in validate(convert(obj)):
                yield f"{place}: {error}"


def _objects(document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a document, those of a list one by one, each with a description of its place."""
    place, value = f"{document.source}, document {document.number}", document.value
    items, kind = value.get("items"), value.get("kind")
    if not isinstance(items, list) or not isinstance(kind, str) or not kind.endswith("List"):
        yield f"{place}{_name(value)}", value
        return
    # The items of a typed list have no kind and no version of their own.
    known = (
        {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    )
    for number, item in enumerate(items):
        obj = {**known, **item} if isinstance(item, dict) else {}
        yield f"{place}, items[{number}]{_name(obj)}", obj


def _name(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f" ({obj.get('kind')} {name})" if name is not None else ""
