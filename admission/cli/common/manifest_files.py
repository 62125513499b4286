"""Reads manifests from files: YAML or JSON, several documents, lists of objects, whole directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import yaml

from admission.cli.common.errors import WrongUsageError
from api.definitions.conversion import convert
from api.parsing.yaml_loader import MOST_LEVELS, load_all

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_STDIN = "-"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as JSON bytes, and the file that contains it."""

    source: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file, and its number in that file, counted from 1."""

    source: str
    number: int
    value: dict[str, Any]


def read_documents(names: Iterable[str], stdin: IO[str]) -> list[Document]:
    """Return the documents of all files unchanged. Empty ones are omitted, but counted.

    Raises WrongUsageError naming the file.
    """
    return [
        Document(source, number, document)
        for source, text in _texts(names, stdin)
        for number, document in _documents(source, text)
    ]


def read_manifests(names: Iterable[str], stdin: IO[str]) -> list[Manifest]:
    """Return the objects of all files; objects of older API versions are converted.

    A directory means the YAML and JSON files below it. Raises WrongUsageError naming the file.
    """
    manifests = []
    for source, text in _texts(names, stdin):
        for _, document in _documents(source, text):
            manifests += [Manifest(source, msgspec.json.encode(one)) for one in _objects(source, document)]
    return manifests


def _texts(names: Iterable[str], stdin: IO[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name == _STDIN:
            yield "standard input", stdin.read()
            continue
        path = Path(name)
        files = sorted(one for one in path.rglob("*") if one.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise WrongUsageError(f"{name} holds no .yaml, .yml or .json file")
        for file in files:
            try:
                yield str(file), file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise WrongUsageError(f"{file} cannot be read: {_reason(error)}") from error


def _documents(source: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        # JSON is YAML, so one parser reads both.
        for number, document in enumerate(load_all(text), start=1):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise WrongUsageError(
                    f"{source} holds a {type(document).__name__}, expected an object with a kind"
                )
            # By aliases.
            if _is_deeper(document, MOST_LEVELS):
                raise WrongUsageError(f"{source} is nested too deep: more than {MOST_LEVELS} levels")
            yield number, document
    except yaml.YAMLError as error:
        raise WrongUsageError(f"{source} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise WrongUsageError(f"{source} is nested too deep: more than {MOST_LEVELS} levels") from error


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested in more levels than these."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(one, levels - 1) for one in inner)


def _objects(source: str, document: dict[str, Any]) -> Iterator[Any]:
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise WrongUsageError(f"{source} holds an object without a kind")
    converted = convert(document)
    items = converted.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield converted
        return
    for item in items:
        # The items of a typed list have no kind of their own.
        if isinstance(item, dict):
            yield {"kind": kind.removesuffix("List"), **item}


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
