"""Which group a StatefulSet has, and what is looked at when the set or its Workload changes."""

from __future__ import annotations

from typing import Any

import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.cluster_state.pod_groups import UnitKey
from api import keys
from api.jobs.stateful_set import StatefulSet
from api.kube.informer import ChangeType
from api.objects.common import OwnerReference
from tests.admission.controller.known import Known, made
from tests.admission.podworld import member_object

Object = dict[str, Any]
SETTINGS = ClusterStateSettings(with_pods=True, serving_kinds=frozenset({"StatefulSet"}))
CHAT = StatefulSet(namespace="team", name="chat", uid="chat")
# Of a set of the same name that was deleted and left its pods.
FORMER = StatefulSet(namespace="team", name="chat", uid="former")
OWN, OLDER = CHAT.group, CHAT.older_group


def set_object(
    *, uid: str = "chat", group: str | None = None, is_held: bool = True, replicas: Any = 2
) -> Object:
    """Return the StatefulSet chat as the webhook leaves it; `group` is a label of its template."""
    template: Object = {"labels": {} if group is None else {keys.POD_GROUP_NAME: group}}
    if is_held:
        template["annotations"] = {keys.POD_SUSPENDING_PARENT: "statefulset"}
    spec = {"replicas": replicas, "template": {"metadata": template, "spec": {"containers": []}}}
    obj = made("StatefulSet", "chat", "team", version="apps/v1", labels={keys.QUEUE_NAME: "lq"}, spec=spec)
    obj["metadata"]["uid"] = uid
    return obj


def owner(uid: str = "chat") -> Object:
    """Return the reference to the set with this uid."""
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": uid}


def pod_of(group: str, uid: str = "chat", *, name: str = "") -> Object:
    """Return a pod that the set with this uid controls."""
    number = [OWN, OLDER, FORMER.group, group].index(group)
    pod = member_object(name or f"chat-{number}", labels={keys.POD_GROUP_NAME: group})
    pod["metadata"]["ownerReferences"] = [{**owner(uid), "controller": True}]
    return pod


def workload_of(name: str, uid: str | None = "chat", *, is_group: bool = True) -> Object:
    """Return a Workload that the set with this uid owns; with None no set does."""
    annotations = {keys.IS_GROUP_WORKLOAD: "true"} if is_group else {}
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    owners = [] if uid is None else [owner(uid)]
    return made("Workload", name, "team", annotations=annotations, owners=owners, spec=spec)


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([], OWN, id="is named with its uid"),
        pytest.param([workload_of(OLDER, None)], OLDER, id="is an older one that a Workload was made for"),
        pytest.param([workload_of(OLDER)], OLDER, id="is an older one whose Workload it owns"),
        pytest.param(
            [workload_of(OLDER, None, is_group=False)], OWN, id="is no Workload that was not made for a group"
        ),
        pytest.param([workload_of(OLDER, "former")], OWN, id="is not that of a former set of its name"),
        pytest.param([workload_of(OLDER), workload_of(OWN)], OWN, id="is the one with its uid if both exist"),
        pytest.param([pod_of(OLDER)], OLDER, id="is the older one if its pods are in that"),
        pytest.param(
            [pod_of(OLDER), workload_of(OWN)], OLDER, id="is that of its pods before its Workload's"
        ),
        pytest.param([pod_of(OLDER), pod_of(OWN)], OWN, id="is the one with its uid if one pod is in that"),
        pytest.param([pod_of(OLDER, "former")], OWN, id="is not that of the pods of a former set"),
        pytest.param([pod_of(FORMER.group)], FORMER.group, id="is that of the pods that it has adopted"),
        pytest.param([workload_of(FORMER.group)], FORMER.group, id="is that of the pods that it had adopted"),
        pytest.param([pod_of("other")], OWN, id="is none that a pod names by itself"),
        pytest.param(
            [pod_of(FORMER.group, name="chat-x")],
            OWN,
            id="is not that of a pod that is not numbered as its own",
        ),
    ],
)
def test_the_group_of_a_set(objects: list[Object], want: str) -> None:
    known = Known(set_object(), *objects, settings=SETTINGS)
    sets = known.cluster_state.stateful_sets

    assert sets.group_of(CHAT) == want
    found = sets.of_unit(UnitKey("team", want, ""))
    assert found is not None
    assert found.value.uid == CHAT.uid


def test_a_set_whose_template_names_the_older_group_keeps_it_without_pods_and_workload() -> None:
    known = Known(set_object(group=OLDER), settings=SETTINGS)

    seen = known.cluster_state.stateful_sets.get(("team", "chat"))
    assert seen is not None
    assert known.cluster_state.stateful_sets.group_of(seen.value) == OLDER


def test_an_older_workload_that_is_being_deleted_is_not_taken_over() -> None:
    workload = workload_of(OLDER, None)
    workload["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    known = Known(set_object(), workload, settings=SETTINGS)

    assert known.cluster_state.stateful_sets.group_of(CHAT) == OWN


@pytest.mark.parametrize("is_held", [True, False], ids=["held for its queue", "that are not held"])
def test_a_set_is_looked_at_without_pods_if_its_pods_will_be(is_held: bool) -> None:
    known = Known(set_object(is_held=is_held), settings=SETTINGS)

    units = {UnitKey("team", name, "") for name in (OWN, OLDER)}
    assert dirty(known) == (units if is_held else set())
    assert (known.cluster_state.stateful_sets.of_unit(UnitKey("team", OWN, "")) is not None) == is_held


def test_a_deleted_set_has_no_group_and_leaves_no_mark_of_groups_without_workload() -> None:
    known = Known(set_object(), workload_of(OWN), settings=SETTINGS)
    dirty(known)

    known.tell(set_object(), ChangeType.DELETED)

    assert dirty(known) == {UnitKey("team", OWN, "")}
    assert known.cluster_state.stateful_sets.of_unit(UnitKey("team", OWN, "")) is None
    assert known.cluster_state.stateful_sets.has_gone("chat")


def test_a_set_that_was_created_again_takes_the_place_of_the_former_one() -> None:
    known = Known(set_object(uid="former"), settings=SETTINGS)

    known.tell(set_object())

    assert known.cluster_state.stateful_sets.of_unit(UnitKey("team", FORMER.group, "")) is None
    assert known.cluster_state.stateful_sets.of_unit(UnitKey("team", OWN, "")) is not None


def test_the_group_of_a_workload_that_is_gone_is_that_of_the_set_again() -> None:
    known = Known(set_object(), workload_of(FORMER.group), settings=SETTINGS)

    known.tell(workload_of(FORMER.group), ChangeType.DELETED)

    assert known.cluster_state.stateful_sets.group_of(CHAT) == OWN


def test_a_template_that_cannot_be_read_is_reported_and_the_set_left_alone() -> None:
    broken = set_object()
    broken["spec"]["template"]["spec"] = {"containers": "none"}
    reported: list[str] = []
    known = Known(settings=SETTINGS)
    known.cluster_state.observers.object_unreadable.append(
        lambda kind, name, error: reported.append(f"{kind} {name}: {error}")
    )

    known.tell(broken)

    (said,) = reported
    assert said.startswith("StatefulSet team/chat: Expected `array | null`, got `str`")
    assert dirty(known) == set()


@pytest.mark.parametrize(
    ("kind", "uid", "want"),
    [
        pytest.param("StatefulSet", "chat", (OWN, 5), id="is that of the set"),
        pytest.param(
            "StatefulSet", "new", (None, 1), id="follows from the uid of a set that is not seen yet"
        ),
        pytest.param("ReplicaSet", "chat", None, id="is none for another owner"),
    ],
)
def test_the_group_of_a_pod(kind: str, uid: str, want: tuple[str | None, int] | None) -> None:
    sets = Known(set_object(replicas=5), settings=SETTINGS).cluster_state.stateful_sets

    found = sets.of_pod("team", OwnerReference(api_version="apps/v1", kind=kind, name="chat", uid=uid))

    own = StatefulSet(namespace="team", name="chat", uid=uid).group
    assert (None if found is None else (sets.group_of(found), found.replicas)) == (
        None if want is None else (want[0] or own, want[1])
    )


def dirty(known: Known) -> set[UnitKey]:
    """Return the units that are to be looked at, and take their marks away."""
    found = set()
    while (unit := known.cluster_state.pods.take_dirty()) is not None:
        found.add(unit)
    return found
