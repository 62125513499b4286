"""Rows that the configuration writes: what is read at their paths, and what is said of a wrong one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api.jobs.job import ComposeError
from api.jobs.owners.composing import check_owner, read_pod_sets
from api.jobs.owners.external import ExternalKind, ExternalPodSet, Sign, row_of, unknown_paths
from api.jobs.owners.owner import to_owner
from api.jobs.owners.paths import replaced
from api.objects.cluster import OwnerObject
from api.objects.common import Meta

Object = dict[str, Any]

TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def train(**fields: Any) -> ExternalKind:
    """Return a kind with a head and groups of workers."""
    head = ExternalPodSet(name="Head", template=("spec", "head"))
    groups = ExternalPodSet(
        each=("spec", "groups"), name_at=("name",), template=("pod", "template"), count_at=("size",)
    )
    return ExternalKind(
        kind="Train",
        group="example.com",
        version="v1",
        plural="trains",
        where="integrations.external[0]",
        **{"pod_sets": (head, groups), **fields},
    )


def body(**status: Any) -> Object:
    """Return an object of that kind."""
    groups = [
        {"name": "a", "size": 2, "pod": {"template": TEMPLATE}},
        {"name": "b", "pod": {"template": TEMPLATE}},
    ]
    spec = {"suspend": True, "head": TEMPLATE, "groups": groups}
    return copy.deepcopy({"metadata": {"name": "t"}, "spec": spec, "status": status})


def test_its_pod_sets_are_found_at_their_paths() -> None:
    found = read_pod_sets(row_of(train()), body())

    assert {one.name: (one.count, one.at) for one in found} == {
        "head": (1, ("spec", "head")),
        "a": (2, ("spec", "groups", 0, "pod", "template")),
        "b": (1, ("spec", "groups", 1, "pod", "template")),
    }


def test_entries_of_an_object_are_named_by_their_keys() -> None:
    roles = ExternalPodSet(each=("spec", "roles"), template=("template",), count=3)
    one = {"spec": {"roles": {"Worker": {"template": TEMPLATE}}}}

    (found,) = read_pod_sets(row_of(train(pod_sets=(roles,))), one)

    assert (found.name, found.count, found.at) == ("worker", 3, ("spec", "roles", "Worker", "template"))


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        pytest.param(
            ("spec", "head"),
            None,
            "spec.head is not set: integrations.external[0] expects a pod template here; "
            "correct the object, or the path",
            id="no template",
        ),
        pytest.param(
            ("spec", "groups", 1, "name"),
            None,
            "spec.groups[1].name is not set: integrations.external[0] expects the name of a pod set here; "
            "correct the object, or the path",
            id="no name",
        ),
        pytest.param(
            ("spec", "groups"),
            None,
            "spec.groups is not set: integrations.external[0] expects pod sets here; "
            "correct the object, or the path",
            id="no groups",
        ),
        pytest.param(
            ("spec", "groups", 0, "size"), "two", "'two' is no number", id="a count that is no number"
        ),
        pytest.param(
            ("spec", "groups", 0, "size"),
            -5,
            "spec.groups[0].size is -5: integrations.external[0] expects a number of pods here, 0 or more; "
            "correct the object, or the path",
            id="a count below zero",
        ),
    ],
)
def test_an_object_without_what_the_row_expects_names_the_path(path: Any, value: Any, want: str) -> None:
    with pytest.raises(ComposeError) as refused:
        check_owner(row_of(train()), replaced(body(), path, value))

    assert want in str(refused.value)


@pytest.mark.parametrize(
    ("sign", "status", "want"),
    [
        pytest.param(
            Sign(condition="Done"),
            {"conditions": [{"type": "Done", "status": "True"}]},
            True,
            id="a condition",
        ),
        pytest.param(
            Sign(condition="Done"),
            {"conditions": [{"type": "Done", "status": "False"}]},
            False,
            id="a false one",
        ),
        pytest.param(
            Sign(path=("status", "phase"), values=("Ok", "Fine")), {"phase": "Fine"}, True, id="a value"
        ),
        pytest.param(
            Sign(path=("status", "phase"), values=("Ok",)), {"phase": "Bad"}, False, id="another value"
        ),
        pytest.param(Sign(path=("status", "done"), values=("true",)), {"done": True}, True, id="a boolean"),
        pytest.param(Sign(path=("status", "phase"), values=("Ok",)), {}, False, id="none yet"),
    ],
)
def test_states_are_shown_by_a_condition_or_a_value(sign: Sign, status: Object, want: bool) -> None:
    row = row_of(train(ready=sign, succeeded=sign, message=("status", "why")))
    obj = OwnerObject(metadata=Meta(name="t"), spec=body()["spec"], status={**status, "why": "so"})

    owner = to_owner(row, obj)
    assert row.are_pods_ready({"status": status}) is want
    assert (owner.outcome is not None) is want
    assert owner.outcome is None or (owner.outcome.is_success, owner.outcome.message) == (True, "so")


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, 0, id="nothing yet"),
        pytest.param({"active": 3}, 3, id="a number"),
        pytest.param({"active": [{}, {}]}, 2, id="a list"),
    ],
)
def test_what_still_runs_is_a_number_or_a_list(status: Object, want: int) -> None:
    row = row_of(train(active=("status", "active")))
    assert to_owner(row, OwnerObject(metadata=Meta(name="t"), status=status)).active == want


def definition(spec: Object) -> Object:
    """Return the definition of the kind with these properties of spec."""
    schema = {"properties": {"spec": {"properties": spec}, "status": {"properties": {"phase": {}}}}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


_POD = {"properties": {"template": {"x-kubernetes-preserve-unknown-fields": True}}}
_GROUP = {"properties": {"name": {"type": "string"}, "size": {"type": "integer"}, "pod": _POD}}
KNOWN = {"suspend": {"type": "boolean"}, "head": {}, "groups": {"items": _GROUP}}


def test_a_row_whose_paths_are_in_the_definition_has_no_fault() -> None:
    assert unknown_paths(train(), definition(KNOWN)) == ()
    assert (
        unknown_paths(
            train(suspend=("spec", "any", "suspend")),
            definition({**KNOWN, "any": {"x-kubernetes-preserve-unknown-fields": True}}),
        )
        == ()
    )


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param(
            {"suspend": ("spec", "suspnd")},
            "suspend: the definition of trains.example.com/v1 has no spec.suspnd",
            id="suspend",
        ),
        pytest.param(
            {"active": ("status", "active")},
            "active: the definition of trains.example.com/v1 has no status.active",
            id="status",
        ),
        pytest.param(
            {"succeeded": Sign(path=("status", "state"), values=("Ok",))},
            "succeeded.path: the definition of trains.example.com/v1 has no status.state",
            id="a sign",
        ),
        pytest.param(
            {"pod_sets": (ExternalPodSet(each=("spec", "groups"), template=("pods",)),)},
            "podSets[0].template: the definition of trains.example.com/v1 has no spec.groups.*.pods",
            id="within a list",
        ),
    ],
)
def test_a_path_that_the_definition_does_not_have_is_named(fields: Object, want: str) -> None:
    (found,) = unknown_paths(train(**fields), definition(KNOWN))

    assert found == f"integrations.external[0].{want}; correct the path"
