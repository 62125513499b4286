"""docs/keys.md has every key under berth.dev/ of code and manifests once, with who writes it and its form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api import keys
from api.jobs.checkpoint_annotations import checkpoint_faults
from api.jobs.placement_annotations import annotation_faults
from queues.estimates.estimator import length_problems

_ROOT = Path(__file__).parent.parent
# The version of Berth's own objects is written like a key.
_KEY = re.compile(re.escape(keys.BERTH_PREFIX) + r"(?!v1alpha1)[A-Za-z0-9][\w-]*(?:\.NAME|\.(?![\w ]))?")
# Before the times that the page shows: 2026-01-31T00:00:00Z.
_NOW = 1_769_817_600.0
_KUBELET = _ROOT / "api/kube/embedded/standins/kubelet.py"


class Row(NamedTuple):
    """One row of the page."""

    key: str
    on: str
    written_by: str
    form: str
    default: str
    meaning: str


def _rows() -> Iterator[Row]:
    for line in (_ROOT / "docs/keys.md").read_text().splitlines():
        if line.startswith(f"| `{keys.BERTH_PREFIX}"):
            row = Row(*(cell.strip() for cell in line.strip("|").split("|")))
            yield row._replace(key=row.key.strip("`"))


ROWS = tuple(_rows())
_OF_AUTHORS = [row for row in ROWS if row.on.startswith("Jobs")]


def test_the_page_has_every_key_of_the_code_and_of_the_manifests_and_no_other() -> None:
    known = {*_of_the_code(), *_of_the_manifests(), *_of_simulated_nodes()} - {keys.BERTH_SIMULATION_PREFIX}

    assert {row.key.removesuffix("NAME") for row in ROWS} == known


def test_the_page_is_sorted_and_names_each_key_once_for_each_object() -> None:
    shown = [(row.key.lower(), row.on) for row in ROWS]

    assert [key for key, _ in shown] == sorted(key for key, _ in shown)
    assert len(shown) == len(set(shown))


def test_authors_write_the_keys_that_are_read_on_jobs_and_berth_those_that_it_writes() -> None:
    of_berth = {row.key for row in ROWS if row.written_by.startswith("Berth")}

    assert {row.key for row in _OF_AUTHORS} == keys.BERTH_TEMPLATE_KEYS
    assert {row.written_by.split(",")[0] for row in _OF_AUTHORS} == {"author"}
    assert keys.BERTH_WRITTEN_KEYS - of_berth == set()


@pytest.mark.parametrize("row", _OF_AUTHORS, ids=lambda row: row.key)
def test_every_form_that_the_page_shows_is_accepted(row: Row) -> None:
    shown = re.findall(r"`([^`]+)`", row.form)

    assert shown
    for value in shown:
        sources = ({row.key: value},)
        assert [*annotation_faults(sources), *checkpoint_faults(sources)] == []
        assert length_problems(sources, now=_NOW) == ()


def _of_the_code() -> Iterator[str]:
    for folder in ("admission", "api", "queues", "checkpoint"):
        for path in (_ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and _KEY.fullmatch(text):
                    yield text
    # Those that are composed of the prefix and a name.
    for value in vars(keys).values():
        values = [value] if isinstance(value, str) else value if isinstance(value, frozenset) else []
        yield from (one for one in values if _KEY.fullmatch(one))


def _of_the_manifests() -> Iterator[str]:
    for path in (_ROOT / "deploy").rglob("*.yaml"):
        # Descriptions of fields end in a full stop after the key.
        if path.parent.name != "crds":
            yield from _KEY.findall(path.read_text())


def _of_simulated_nodes() -> Iterator[str]:
    names = re.findall(r"\{_PREFIX\}([\w-]+)", _KUBELET.read_text())
    return (keys.BERTH_SIMULATION_PREFIX + name for name in names)
