"""What is known of ProvisioningRequests and their templates, and which Workloads a change concerns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.controller.cluster_state.provisioning import Provisioning
from admission.decisions.api_writes import Purpose, Verb, Write
from admission.engine.engine import Engine
from admission.reconcile.provisioning.context import ProvisioningContext
from api.keys import PROVISIONING_CONTROLLER
from api.kube.informer import Change, ChangeType
from api.objects.common import NamedObject
from api.objects.provisioning import ProvisioningRequestObject
from api.provisioning import ProvisioningConfig
from api.queueing import AdmissionCheck, CheckParameters
from tests.admission.controller.known import Known, Object, made, workload_object
from tests.admission.world import read_workload

NOW = 1_800_000_000.0
WORKLOAD, _ = read_workload(
    {
        "metadata": {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "1"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": {"admissionChecks": [{"name": "check", "state": "Pending"}]},
    }
)


class State:
    """The state under test, with a check whose settings are there, and the Workloads that were marked."""

    def __init__(self, *, is_kept: bool = True) -> None:
        engine = Engine()
        named = CheckParameters(group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name="c")
        check = AdmissionCheck(
            name="check", controller_name=PROVISIONING_CONTROLLER, is_active=True, parameters=named
        )
        engine.objects.upsert(check, now=NOW)
        engine.objects.upsert(ProvisioningConfig(name="c", class_name="class"), now=NOW)
        self.marked: list[tuple[str, str]] = []
        self.provisioning = Provisioning(engine, self.marked.append, is_kept=is_kept)

    def context(self) -> ProvisioningContext:
        """Return what is known for the Workload."""
        found = self.provisioning.context_of(WORKLOAD)
        assert found is not None
        return found


def owned(kind: str, name: str, *, owner: str = "Workload", owner_uid: str = "u", version: str = "5") -> Any:
    """Return an object that the Workload, or its request, owns."""
    reference = {"kind": owner, "name": "w", "uid": owner_uid, "controller": True}
    metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": version}
    return {"kind": kind, "metadata": {**metadata, "ownerReferences": [reference]}, "spec": {}}


def raw(kind: str, name: str, **fields: Any) -> bytes:
    """Return the bytes of such an object."""
    return msgspec.json.encode(owned(kind, name, **fields))


def refused(kind: str, name: str) -> Write:
    """Return the creation of an object."""
    return Write(
        verb=Verb.CREATE, kind=kind, namespace="team", name=name, body=b"", purpose=Purpose.REQUEST_NODES
    )


def test_a_request_is_known_from_the_answer_to_its_creation_and_marks_its_workload() -> None:
    state = State()

    state.provisioning.see_raw("ProvisioningRequest", raw("ProvisioningRequest", "w-check-1"))

    assert [one.name for one in state.context().requests] == ["w-check-1"]
    assert state.marked == [("team", "w")]


def test_a_deleted_request_is_gone_and_marks_its_workload_again() -> None:
    state = State()
    obj = msgspec.convert(owned("ProvisioningRequest", "w-check-1"), ProvisioningRequestObject)
    state.provisioning.take_request(Change(ChangeType.ADDED, obj, None, None))

    state.provisioning.take_request(Change(ChangeType.DELETED, obj, None, None))

    assert state.context().requests == ()
    assert state.marked == [("team", "w")] * 2


def test_what_a_complete_list_lacks_is_gone() -> None:
    state = State()
    state.provisioning.see_raw("ProvisioningRequest", raw("ProvisioningRequest", "w-check-1"))
    state.provisioning.see_raw("PodTemplate", raw("PodTemplate", "t"))

    state.provisioning.drop_unlisted_requests(frozenset(), "9")
    state.provisioning.drop_unlisted_templates(frozenset(), "9")

    assert state.context().requests == ()
    assert state.context().template("t") is None


def test_a_template_of_a_request_marks_the_workload_of_that_request() -> None:
    state = State()
    state.provisioning.see_raw("ProvisioningRequest", raw("ProvisioningRequest", "w-check-1"))
    template = owned("PodTemplate", "t", owner="ProvisioningRequest", owner_uid="w-check-1")
    state.marked.clear()

    obj = msgspec.convert(template, NamedObject)
    state.provisioning.take_template(Change(ChangeType.ADDED, obj, None, None))

    assert state.context().template("t") is not None
    assert state.marked == [("team", "w")]


def test_a_refusal_is_known_until_the_object_is_there() -> None:
    state = State()
    state.provisioning.note_refused(refused("PodTemplate", "t"), ValueError("quota exceeded"))
    assert state.context().refused("PodTemplate", "t") == "quota exceeded"

    state.provisioning.see_raw("PodTemplate", raw("PodTemplate", "t"))

    assert state.context().refused("PodTemplate", "t") is None


def test_a_controller_that_leaves_these_checks_to_another_knows_nothing_of_them() -> None:
    assert State(is_kept=False).provisioning.context_of(WORKLOAD) is None


@pytest.mark.parametrize(
    "said", [pytest.param((), id="one that runs"), pytest.param(("Finished",), id="a finished one")]
)
def test_the_requests_of_a_workload_are_known_until_they_are_gone(said: tuple[str, ...]) -> None:
    at = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at}
        for type_ in said
    ]
    workload: Object = {**workload_object("w", "team", "lq"), "status": {"conditions": conditions}}
    owner = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": "w",
        "uid": "w",
        "controller": True,
    }
    request = made("ProvisioningRequest", "w-check-1", "team", owners=[owner], spec={})
    known = Known(workload, request)

    seen = known.cluster_state.workloads.get(("team", "w"))

    assert seen is not None
    context = known.cluster_state.contexts.of_workload(seen.value).provisioning
    assert context is not None
    assert [one.name for one in context.requests] == ["w-check-1"]
