"""Each field of the objects of a what-if question, with a value of another type: an answer or a sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from admission.answers.what_if import Asker, BadQuestionError, Question, what_if
from admission.controller.queries.copies import ask_in_copy
from admission.engine.engine import Engine
from tests.admission.answers.test_what_if import NOW, busy_world, manifest
from tests.api import samples
from tests.builders import NAMESPACE

_VALUES: tuple[object, ...] = (None, True, -1, 2**70, 1e308, "x", [], [None], {}, {"a": [1]})
_CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"gpu": "1"}}}
_METADATA = {"name": "j", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "own"}}
_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {**_METADATA, "annotations": {"berth.dev/gpu-milli": "3"}},
    "spec": {"suspend": True, "parallelism": 2, "template": {"spec": {"containers": [_CONTAINER]}}},
}
_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": _METADATA, "spec": {"containers": [_CONTAINER]}}
_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"a": "b"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "3"}, "conditions": [{"type": "Ready", "status": "True"}]},
}
_KINDS = ("ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "Topology", "AdmissionPolicy")
_OBJECTS = (_JOB, _POD, _NODE, manifest(1, 60, 0), *map(samples.full, _KINDS))
# Each question is asked in a process of its own. No divisor of the number of values, so that all are used.
_STEP = 31


@pytest.mark.parametrize("known", _OBJECTS, ids=lambda known: known["kind"])
def test_a_field_of_any_type_is_answered_or_refused_in_a_sentence(known: dict[str, Any]) -> None:
    world = busy_world([(4, 60, 0), (8, 60, 0)])
    changed = [_changed(known, path, value) for path in _paths(known) if path for value in _VALUES]

    for one in changed[::_STEP]:
        said = ask_in_copy(partial(_said, world.engine, one))

        assert "\n" not in said


def _said(engine: Engine, asked: dict[str, Any]) -> str:
    """Return the refusal; empty for an answer."""
    try:
        what_if(engine, Question(objects=(asked,), namespace=NAMESPACE), lambda ask: ask(), Asker(now=NOW))
    except BadQuestionError as error:
        return str(error)
    return ""


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value, and of a list that to its first."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from _paths(value[name], (*path, name))
    if isinstance(value, list) and value:
        yield from _paths(value[0], (*path, 0))


def _changed(known: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    """Return a copy with another value at the path."""
    changed = copy.deepcopy(known)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed
