"""Objects that break a rule which their definition does not check: an Event reports field, value and rule.

The embedded server evaluates no CEL and calls no webhook, as a cluster where the objects were written before
the rule, or whose definitions lack it. What can be read all the same is served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane import RestError
from tests.integration.manifests import KUEUE, Object, condition, kueue_object, make_workload, quota
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("invalid-specs")

_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
}
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
def scene(embedded_controller: Replica, embedded_scene: Scene) -> Scene:
    """Give a namespace that the controller serves, with a flavor."""
    assert embedded_controller.child.is_running()
    embedded_scene.create_flavor()
    return embedded_scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A spec of `kind`, and what is reported about it. NS is replaced by the namespace in both.

    `rule`: Kueue's words in the definition, where its rule is about the whole spec and names no field.
    """

    kind: str
    spec: Callable[[str], Object]
    says: str
    is_active: bool | None = None
    rule: str = ""


def queue(*groups: Object, **spec: Any) -> Object:
    """Return the spec of a ClusterQueue."""
    return {"namespaceSelector": {}, "resourceGroups": list(groups), **spec}


def two_flavors(first: str, second: str) -> list[Object]:
    """Return groups of cpu and memory with a flavor each."""
    return [quota(first), quota(second, "memory", "1Gi")]


QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"
CASES = {
    "a limit of borrowing needs a cohort": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(quota(f"{ns}-flavor", borrowingLimit=1)),
        says=f"{QUOTA}.borrowingLimit is 1: needs spec.cohortName",
        is_active=True,
    ),
    "no more is lent than there is": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(quota(f"{ns}-flavor", lendingLimit=9), cohortName=f"{ns}-all"),
        says=f"{QUOTA}.lendingLimit is 9: must be at most nominalQuota (4)",
        is_active=True,
    ),
    "a quota is not negative": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(quota(f"{ns}-flavor", nominal=-1)),
        says=f"{QUOTA}.nominalQuota is -1: must not be negative",
        is_active=False,
    ),
    "a flavor is in one group": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(*two_flavors(f"{ns}-flavor", f"{ns}-flavor")),
        says='spec.resourceGroups is "NS-flavor": a flavor must be in one group only',
        is_active=True,
    ),
    "a queue that never reclaims does not borrow by eviction": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(
            quota(f"{ns}-flavor"),
            preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}},
        ),
        says='spec.preemption.borrowWithinCohort.policy is "LowerPriority": must be Never while'
        " reclaimWithinCohort is Never",
        is_active=True,
    ),
    "a check applies to flavors of the queue": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(
            quota(f"{ns}-flavor"),
            admissionChecksStrategy={"admissionChecks": [{"name": "check", "onFlavors": ["gone"]}]},
        ),
        says='spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0] is "gone": must be a flavor of'
        " spec.resourceGroups",
        is_active=False,
    ),
    "a weight is nothing or enough to count": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(quota(f"{ns}-flavor"), fairSharing={"weight": "1n"}),
        says='spec.fairSharing.weight is "1n": must be 0 or more than 1e-9',
        is_active=True,
    ),
    "a selector has words that exist": Case(
        kind="ClusterQueue",
        spec=lambda ns: queue(
            quota(f"{ns}-flavor"),
            namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]},
        ),
        says="spec.namespaceSelector",
        is_active=False,
    ),
    "a weight of a LocalQueue is not negative": Case(
        kind="LocalQueue",
        spec=lambda ns: {"clusterQueue": f"{ns}-any", "fairSharing": {"weight": -1}},
        says="spec.fairSharing.weight is -1, but must not be negative",
        is_active=False,
    ),
    "a limit of a cohort needs a parent": Case(
        kind="Cohort",
        spec=lambda ns: {"resourceGroups": [quota(f"{ns}-flavor", borrowingLimit=1)]},
        says=f"{QUOTA}.borrowingLimit is 1: needs spec.parentName",
    ),
    "a cohort is not its own parent": Case(
        kind="Cohort",
        spec=lambda ns: {"parentName": f"{ns}-faulty"},
        says='spec.parentName is "NS-faulty": a Cohort cannot be its own parent',
    ),
    "a flavor with a topology leads to nodes": Case(
        kind="ResourceFlavor",
        spec=lambda _: {"topologyName": "default"},
        says='spec.topologyName is "default": needs at least one of spec.nodeLabels',
        rule="at least one nodeLabel is required when topology is set",
    ),
    "a label of a flavor is one": Case(
        kind="ResourceFlavor",
        spec=lambda _: {"nodeLabels": {"pool": "not a label"}},
        says='spec.nodeLabels[pool] is "not a label"',
    ),
    "hosts are the narrowest level": Case(
        kind="Topology",
        spec=lambda _: {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
        says='spec.levels is ["kubernetes.io/hostname", "rack"]: the kubernetes.io/hostname label can only'
        " be used at the lowest level of topology",
    ),
}


WEIGHTS = ("resourceAvailability", "topologyAlignment", "domainUtilization", "historicalPerformance")
POLICIES = {
    "levels of an ordering rise": Case(
        kind="AdmissionPolicy",
        spec=lambda _: {"ordering": {"mode": "LeastAttained", "levels": [8, 2]}},
        says="spec.ordering.levels is [8.0, 2.0]: must be in ascending order",
    ),
    "some weight counts": Case(
        kind="AdmissionPolicy",
        spec=lambda _: {"placement": {"scoringWeights": dict.fromkeys(WEIGHTS, 0)}},
        says="spec.placement.scoringWeights is ",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An object that its kind's definition refuses, and what of the refusal names field and rule."""

    plural: str
    body: Object
    says: tuple[str, ...]


PRIORITY_CLASS = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "faulty"}}
REFUSED = {
    "a check without a controller": Refused(
        plural="admissionchecks",
        body=kueue_object("AdmissionCheck", {"name": "unowned"}, {"controllerName": ""}),
        says=("spec.controllerName", "at least 1"),
    ),
    "a check with settings of no kind": Refused(
        plural="admissionchecks",
        body=kueue_object(
            "AdmissionCheck",
            {"name": "kindless"},
            {"controllerName": "example.com/c", "parameters": {"apiGroup": "a.b", "kind": "1", "name": "n"}},
        ),
        says=("spec.parameters.kind", "[a-zA-Z]"),
    ),
    "a priority class that says no priority": Refused(
        plural="workloadpriorityclasses",
        body=PRIORITY_CLASS,
        says=("value", "Required"),
    ),
    "a priority class beyond what counts": Refused(
        plural="workloadpriorityclasses",
        body={**PRIORITY_CLASS, "value": "x"},
        says=("value", "integer"),
    ),
}


def expect_refused(scene: Scene, case: Refused) -> None:
    """Have the API server refuse the case's object in words that help."""
    with pytest.raises(RestError) as refused:
        scene.rest.create(f"/apis/{KUEUE}/{case.plural}", case.body)

    assert refused.value.status == 422
    assert all(word in str(refused.value) for word in case.says), refused.value


def expect_policy_reported(scene: Scene, case: Case) -> None:
    """Wait until an AdmissionPolicy's condition and Event say what is wrong."""
    name, path = scene.scoped("faulty"), "/apis/berth.dev/v1alpha1/admissionpolicies"
    spec = {"clusterQueues": {"names": [scene.scoped("missing")]}, **case.spec(scene.namespace)}
    policy = {**kueue_object("AdmissionPolicy", {"name": name}, spec), "apiVersion": "berth.dev/v1alpha1"}
    scene.rest.create(path, policy)

    def is_reported(found: Object) -> bool:
        return bool(condition(found, "Accepted").get("reason") == "Invalid")

    found = scene.rest.wait(f"{path}/{name}", is_reported)
    assert f"not in force: {case.says}" in condition(found, "Accepted")["message"]
    wait_for(
        lambda: any(case.says in one for one in notes_about(scene, "AdmissionPolicy", name, "PolicyInvalid")),
        f"an Event about AdmissionPolicy {name}",
    )


def path_of(scene: Scene, kind: str) -> str:
    """Return where objects of the kind are."""
    return scene.local_queues if kind == "LocalQueue" else f"/apis/{KUEUE}/{_PLURALS[kind]}"


def notes_about(scene: Scene, kind: str, name: str, reason: str = "InvalidSpec") -> list[str]:
    """Return the notes of the Warning Events about an object."""
    path = scene.events if kind == "LocalQueue" else EVENTS
    return [
        one["note"]
        for one in scene.rest.get(path)["items"]
        if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)
        and (one["type"], one["reason"]) == ("Warning", reason)
    ]


def create_faulty(scene: Scene, case: Case) -> str:
    """Create the case's object. Returns its name. Raises RestError where the API server refuses it."""
    name = "faulty" if case.kind == "LocalQueue" else scene.scoped("faulty")
    faulty = kueue_object(case.kind, {"name": name}, case.spec(scene.namespace))
    scene.rest.create(path_of(scene, case.kind), faulty)
    return name


def expect_reported(scene: Scene, case: Case, name: str) -> None:
    """Wait until Event and condition say what is wrong."""
    path, says = path_of(scene, case.kind), case.says.replace("NS", scene.namespace)

    def is_reported() -> bool:
        return any(note.startswith(says) for note in notes_about(scene, case.kind, name))

    wait_for(is_reported, f"an Event about {case.kind} {name}: {says}")
    if case.is_active is not None:
        found = scene.rest.wait(f"{path}/{name}", lambda queue: bool(condition(queue, "Valid")))
        valid, active = condition(found, "Valid"), condition(found, "Active")
        assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
        assert valid["message"].startswith(says)
        assert active["status"] == str(case.is_active)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_event_reports_field_value_and_rule(scene: Scene, case: Case) -> None:
    expect_reported(scene, case, create_faulty(scene, case))


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_definition_is_refused_with_field_and_rule(
    embedded_scene: Scene, case: Refused
) -> None:
    expect_refused(embedded_scene, case)


@pytest.mark.parametrize("case", POLICIES.values(), ids=POLICIES)
def test_a_policy_that_cannot_be_in_force_says_field_value_and_rule(scene: Scene, case: Case) -> None:
    expect_policy_reported(scene, case)


def test_what_is_mended_is_said_to_be_in_order_again(scene: Scene) -> None:
    name = scene.create_cluster_queue("mended", quota(scene.scoped("flavor"), borrowingLimit=1))
    path = f"/apis/{KUEUE}/clusterqueues/{name}"
    scene.rest.wait(path, lambda found: bool(condition(found, "Valid")))

    scene.rest.patch(path, {"spec": {"cohortName": scene.scoped("cohort")}})

    scene.rest.wait(path, lambda found: not condition(found, "Valid"))
    assert condition(scene.cluster_queue(name), "Active")["reason"] == "Ready"


def test_queues_below_a_cohort_that_cannot_be_read_admit_nothing_and_say_why(scene: Scene) -> None:
    flavor, cohort = scene.scoped("flavor"), scene.scoped("broken")
    spec = {"resourceGroups": [quota(flavor, nominal=-2)]}
    scene.rest.create(f"/apis/{KUEUE}/cohorts", kueue_object("Cohort", {"name": cohort}, spec))
    below = scene.create_cluster_queue("below", quota(flavor), cohortName=cohort)
    beside = scene.create_cluster_queue("beside", quota(flavor))

    said = scene.wait_active(below, reason="Unknown")["message"]

    assert f"Cohort {cohort} cannot be read: spec.resourceGroups[0]" in said
    assert "nominalQuota is -2" in said
    scene.wait_active(beside, reason="Ready")


def test_a_workload_that_cannot_be_read_says_why_and_its_neighbour_is_admitted(scene: Scene) -> None:
    scene.create_queue("good")
    workload = make_workload("unreadable", queue="good")
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack", "preferred": "block"}

    scene.rest.create(scene.workloads, workload)
    scene.create_job("neighbour", queue="good")

    found = scene.rest.wait(
        f"{scene.workloads}/unreadable",
        lambda one: condition(one, "QuotaReserved").get("reason") == "Misconfigured",
    )
    assert "required and preferred" in condition(found, "QuotaReserved")["message"]
    scene.wait_admitted("neighbour")
