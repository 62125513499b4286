"""The finalizer that keeps what is in use: put on at first sight, off when no object needs it."""

from __future__ import annotations

import msgspec
import pytest

from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Purpose
from api.kube.informer import ChangeType
from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)

IN_USE = "kueue.x-k8s.io/resource-in-use"
FOREIGN = "example.com/theirs"
FLAVOR = made("ResourceFlavor", "f", spec={"topologyName": "racks"})
TOPOLOGY = made("Topology", "racks", spec={"levels": [{"nodeLabel": "rack"}]})
CHECK = made("AdmissionCheck", "c", spec={"controllerName": "example.com/c"})
CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
QUEUE = cluster_queue_object("cq", "4", **CHECKED)


def kept(obj: Object, *others: str, is_deleted: bool = False) -> Object:
    """Return the object with the finalizer, and with `others`."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleted else {}
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*others, IN_USE], **deleted}}


def deleted(obj: Object, *others: str) -> Object:
    """Return the object, kept by the finalizer alone from going."""
    return kept(obj, *others, is_deleted=True)


def admitted(name: str, *, is_admitted: bool = True) -> Object:
    """Return a Workload that holds one CPU of the queue."""
    assignment = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    said = [reserved, {**reserved, "type": "Admitted"}] if is_admitted else [reserved]
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    status = {"admission": admission, "conditions": said}
    return {**workload_object(name, "team", "lq"), "status": status}


def written(known: Known, *busy: ObjectTarget) -> dict[str, tuple[Purpose, list[str] | None]]:
    """Return by object what is to be written now: why, and which finalizers are left."""
    writes = known.cluster_state.keeping.take_due(lambda target: target in busy)
    return {
        f"{write.kind}/{write.name}": (
            write.purpose,
            msgspec.json.decode(write.body)["metadata"]["finalizers"],
        )
        for write in writes
    }


def test_everything_that_others_may_name_is_kept_at_first_sight() -> None:
    known = Known(FLAVOR, TOPOLOGY, CHECK, QUEUE)

    want = (Purpose.ADD_FINALIZER, [IN_USE])
    assert written(known) == dict.fromkeys(
        ("ResourceFlavor/f", "Topology/racks", "AdmissionCheck/c", "ClusterQueue/cq"), want
    )
    assert written(known) == {}


def test_a_finalizer_that_another_client_takes_off_is_not_added_again() -> None:
    known = Known(kept(FLAVOR))

    known.tell(FLAVOR)

    assert written(known) == {}


@pytest.mark.parametrize(
    ("users", "going"),
    [
        pytest.param((QUEUE,), FLAVOR, id="a flavor while a ClusterQueue names it"),
        pytest.param((deleted(QUEUE), admitted("w")), FLAVOR, id="and while that one is being deleted"),
        pytest.param((QUEUE,), CHECK, id="a check while a ClusterQueue names it"),
        pytest.param((FLAVOR,), TOPOLOGY, id="a topology while a flavor names it"),
    ],
)
def test_what_is_named_stays_until_no_object_names_it(users: tuple[Object, ...], going: Object) -> None:
    name = f"{going['kind']}/{going['metadata']['name']}"
    known = Known(*users, deleted(going))
    assert name not in written(known)

    for user in users:
        known.tell(user, ChangeType.DELETED)

    assert written(known)[name] == (Purpose.REMOVE_FINALIZER, None)


def test_a_cluster_queue_stays_until_the_last_workload_has_left_its_quota() -> None:
    known = Known(namespace_object("team"), FLAVOR, kept(QUEUE), local_queue_object("lq", "team", "cq"))
    known.tell(admitted("w"))
    known.tell(deleted(QUEUE))
    assert "ClusterQueue/cq" not in written(known)

    known.tell(admitted("w"), ChangeType.DELETED)

    assert written(known) == {"ClusterQueue/cq": (Purpose.REMOVE_FINALIZER, None)}


def test_a_cluster_queue_does_not_wait_for_what_is_only_reserved() -> None:
    known = Known(namespace_object("team"), FLAVOR, kept(QUEUE), local_queue_object("lq", "team", "cq"))
    known.tell(admitted("w", is_admitted=False))
    known.tell(deleted(QUEUE))

    assert written(known)["ClusterQueue/cq"] == (Purpose.REMOVE_FINALIZER, None)


def test_finalizers_of_others_stay() -> None:
    known = Known(deleted(QUEUE, FOREIGN))

    assert written(known) == {"ClusterQueue/cq": (Purpose.REMOVE_FINALIZER, [FOREIGN])}


def test_what_is_being_deleted_is_given_no_finalizer() -> None:
    going = deleted(QUEUE)
    going["metadata"]["finalizers"] = [FOREIGN]

    assert written(Known(going)) == {}


def test_an_object_whose_write_is_on_its_way_is_looked_at_afterwards() -> None:
    known, queue = Known(QUEUE), ObjectTarget("ClusterQueue", "", "cq")

    assert written(known, queue) == {}
    assert written(known) == {"ClusterQueue/cq": (Purpose.ADD_FINALIZER, [IN_USE])}


def test_a_refused_write_is_tried_again_when_asked() -> None:
    known, queue = Known(QUEUE), ObjectTarget("ClusterQueue", "", "cq")
    first = written(known)

    known.cluster_state.keeping.mark(queue)

    assert written(known) == first


def test_one_created_again_under_the_name_is_kept_as_well() -> None:
    known = Known(kept(QUEUE))
    second = {**QUEUE, "metadata": {**QUEUE["metadata"], "uid": "second"}}

    known.tell(second)
    known.tell(QUEUE, ChangeType.DELETED)

    assert written(known) == {"ClusterQueue/cq": (Purpose.ADD_FINALIZER, [IN_USE])}
