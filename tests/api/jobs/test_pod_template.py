"""What a start adds to a pod template and a stop removes; everything else stays."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.job import Job
from api.jobs.job_patches import restored_patch, start_injection, start_patch, suspend_patch
from api.jobs.pod_template import (
    Injection,
    StartConflict,
    has_same_directives,
    has_same_tolerations,
    injection_patch,
    restore_patch,
    sanitised,
)
from api.objects.common import WireToleration
from api.workload import (
    Admission,
    CheckState,
    DomainCount,
    PodSetAssignment,
    TopologyAssignment,
    Workload,
    WorkloadKey,
)

SERVER_LABELS = {"batch.kubernetes.io/job-name": "j"}


def make_template(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a pod template of a Job."""
    metadata = {"labels": {**SERVER_LABELS, **(labels or {})}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", **spec}}


def make_workload(
    *, checks: tuple[CheckState, ...] = (), queue: str = "lq", cluster_queue: str = "cq"
) -> Workload:
    """Return an admitted Workload named w."""
    return Workload(
        key=WorkloadKey("team", "w"),
        uid="u",
        created_at=0.0,
        pod_sets=(),
        queue_name=queue,
        checks=checks,
        admission=Admission(cluster_queue=cluster_queue, pod_sets=(make_assignment(),)),
    )


def make_assignment(**fields: Any) -> PodSetAssignment:
    """Return the assignment of one pod."""
    return PodSetAssignment(**{"name": "main", "count": 1, "flavors": {}, "usage": {}, **fields})


def test_a_workload_keeps_what_a_stop_must_restore() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]
    template = make_template({"team": "a"}, containers=[{"name": "c", "env": env}], volumes=[{}])
    template["metadata"]["creationTimestamp"] = None

    kept = sanitised(template)

    assert kept == {
        "metadata": {"labels": {**SERVER_LABELS, "team": "a"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}],
            "volumes": [{}],
        },
    }


def test_a_workload_has_a_fraction_as_a_text_which_its_definition_accepts() -> None:
    resources = {"requests": {"cpu": 0.5, "memory": "1Gi", "gpu": 1}, "limits": {"memory": "1Gi"}}
    template = make_template(containers=[{"name": "c", "resources": resources}])

    (kept,) = sanitised(template)["spec"]["containers"]

    assert kept["resources"] == {
        "requests": {"cpu": "0.5", "memory": "1Gi", "gpu": 1},
        "limits": {"memory": "1Gi"},
    }


def test_an_injection_adds_and_overwrites_only_what_is_its_own() -> None:
    template = make_template(
        {"kueue.x-k8s.io/podset": "old"},
        nodeSelector={"gpu": "h100"},
        tolerations=[{"key": "mine", "operator": "Exists"}],
    )
    injection = Injection(
        labels={"kueue.x-k8s.io/podset": "main"},
        node_selector={"zone": "a", "gpu": "h100"},
        tolerations=({"key": "mine", "operator": "Exists"}, {"key": "spot"}),
        gates=("g",),
    )

    assert injection_patch(template, injection) == {
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "mine", "operator": "Exists"}, {"key": "spot"}],
            "schedulingGates": [{"name": "g"}],
        },
    }


def test_what_is_there_already_needs_no_patch() -> None:
    template = make_template(nodeSelector={"zone": "a"})

    assert injection_patch(template, Injection(node_selector={"zone": "a"})) == {}


@pytest.mark.parametrize(
    ("injection", "want"),
    [
        pytest.param(
            Injection(node_selector={"zone": "b"}), ("nodeSelector zone", "a", "b"), id="a node selector"
        ),
        pytest.param(Injection(labels={"team": "x"}), ("label team", "a", "x"), id="a label"),
    ],
)
def test_the_users_own_values_are_not_overwritten(injection: Injection, want: tuple[str, str, str]) -> None:
    template = make_template({"team": "a"}, nodeSelector={"zone": "a"})

    with pytest.raises(StartConflict) as conflict:
        injection_patch(template, injection)

    assert (conflict.value.field, conflict.value.have, conflict.value.want) == want


@pytest.mark.parametrize(
    ("original", "template", "want"),
    [
        pytest.param(
            make_template({"team": "a"}, nodeSelector={"gpu": "h100"}),
            make_template(
                {"team": "a", "kueue.x-k8s.io/podset": "main"},
                {"kueue.x-k8s.io/workload": "w"},
                nodeSelector={"gpu": "h100", "zone": "a"},
                tolerations=[{"key": "spot"}],
                schedulingGates=[{"name": "g"}],
            ),
            {
                "metadata": {
                    "labels": {"kueue.x-k8s.io/podset": None},
                    "annotations": {"kueue.x-k8s.io/workload": None},
                },
                "spec": {"nodeSelector": {"zone": None}, "tolerations": None, "schedulingGates": None},
            },
            id="all that a start added goes",
        ),
        pytest.param(make_template(), make_template(), {}, id="nothing to restore"),
        pytest.param(
            {"metadata": {"labels": {"team": "a"}}, "spec": {}},
            make_template({"mine": "1", "kueue.x-k8s.io/podset": "main"}, {"autoscaling.x-k8s.io/x": "1"}),
            {
                "metadata": {
                    "labels": {"kueue.x-k8s.io/podset": None, "team": "a"},
                    "annotations": {"autoscaling.x-k8s.io/x": None},
                }
            },
            id="a Workload that kept only some labels does not take the others away",
        ),
    ],
)
def test_a_stop_restores_the_template(
    original: dict[str, Any], template: dict[str, Any], want: dict[str, Any]
) -> None:
    assert restore_patch(template, original) == want


def test_a_stop_leaves_what_the_api_server_has_written_since() -> None:
    template = make_template({"batch.kubernetes.io/controller-uid": "u"})

    assert restore_patch(template, make_template()) == {}


@pytest.mark.parametrize(
    ("kept", "want"),
    [
        pytest.param(SERVER_LABELS, False, id="of a whole template all labels count"),
        pytest.param({}, True, id="of a template that another writer has cut labels are left out"),
    ],
)
def test_directives_compare(kept: dict[str, str], want: bool) -> None:
    other = make_template()
    other["metadata"]["labels"] = kept

    assert has_same_directives(make_template({"team": "a"}), other) is want


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        pytest.param([{"key": "a"}], [{"key": "a", "operator": "Equal", "value": ""}], True, id="by meaning"),
        pytest.param([{"key": "a"}, {"key": "b"}], [{"key": "b"}, {"key": "a"}], True, id="in any order"),
        pytest.param([{"key": "a"}], [{"key": "a", "effect": "NoExecute"}], False, id="another effect"),
        pytest.param([], [{"key": "a"}], False, id="one more"),
    ],
)
def test_tolerations_compare(one: list[Any], other: list[Any], want: bool) -> None:
    assert has_same_tolerations(make_template(tolerations=one), make_template(tolerations=other)) is want


def test_a_start_names_workload_and_queues_and_takes_the_flavors_nodes() -> None:
    tolerations = (WireToleration(key="spot", operator="Exists", toleration_seconds=5),)

    injection = start_injection(make_workload(), make_assignment(), {"zone": "a"}, tolerations)

    assert injection == Injection(
        labels={
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/managed": "true",
            "kueue.x-k8s.io/local-queue-name": "lq",
            "kueue.x-k8s.io/cluster-queue-name": "cq",
        },
        annotations={"kueue.x-k8s.io/workload": "w"},
        node_selector={"zone": "a"},
        tolerations=({"key": "spot", "operator": "Exists", "tolerationSeconds": 5},),
    )


def test_a_queue_whose_name_is_too_long_for_a_label_is_left_out() -> None:
    workload = make_workload(cluster_queue="c" * 64)

    injection = start_injection(workload, make_assignment(), {}, ())

    assert "kueue.x-k8s.io/cluster-queue-name" not in injection.labels


def test_a_placed_pod_set_waits_at_the_topology_gate() -> None:
    topology = TopologyAssignment(levels=("host",), domains=(DomainCount(values=("n",), count=1),))

    injection = start_injection(make_workload(), make_assignment(topology=topology), {}, ())

    assert injection.gates == ("kueue.x-k8s.io/topology",)
    assert injection.annotations["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"


def update(**fields: Any) -> CheckState:
    """Return a check that is ready, with an update of the main pod set."""
    return CheckState(name="c", state="Ready", pod_set_updates=({"name": "main", **fields},))


def test_updates_of_checks_are_merged_in() -> None:
    other = CheckState(name="o", state="Ready", pod_set_updates=({"name": "x", "labels": {"no": "no"}},))
    checks = (
        update(annotations={"a": "1"}, nodeSelector={"pool": "p"}, tolerations=[{"key": "t"}]),
        other,
    )

    injection = start_injection(make_workload(checks=checks), make_assignment(), {"zone": "a"}, ())

    assert injection.annotations == {"kueue.x-k8s.io/workload": "w", "a": "1"}
    assert injection.node_selector == {"zone": "a", "pool": "p"}
    assert injection.tolerations == ({"key": "t"},)
    assert "no" not in injection.labels


def test_checks_that_contradict_each_other_do_not_start() -> None:
    checks = (update(labels={"a": "1"}), update(labels={"a": "2"}))

    with pytest.raises(StartConflict, match="label a is '1', but its admission needs '2'"):
        start_injection(make_workload(checks=checks), make_assignment(), {}, ())


def make_job(**fields: Any) -> Job:
    """Return a suspended Job of four pods."""
    fixed = {
        "namespace": "t",
        "name": "j",
        "uid": "u",
        "is_suspended": True,
        "parallelism": 4,
        "completions": 4,
    }
    return Job(**{**fixed, **fields})


PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "1"}
EQUAL = {**PARTIAL, "kueue.x-k8s.io/job-completions-equal-parallelism": "true"}


@pytest.mark.parametrize(
    ("annotations", "count", "want"),
    [
        pytest.param({}, 4, {"suspend": False}, id="all pods"),
        pytest.param(PARTIAL, 3, {"suspend": False, "parallelism": 3}, id="fewer pods"),
        pytest.param(
            EQUAL, 3, {"suspend": False, "parallelism": 3, "completions": 3}, id="fewer pods and completions"
        ),
    ],
)
def test_a_start_sets_the_number_of_pods(
    annotations: dict[str, str], count: int, want: dict[str, Any]
) -> None:
    patch = start_patch(make_job(annotations=annotations), make_template(), Injection(), count)

    assert patch == {"spec": want}


@pytest.mark.parametrize(
    ("annotations", "pod_set", "want"),
    [
        pytest.param(PARTIAL, {"count": 9}, {"parallelism": 9}, id="partial admission gives pods back"),
        pytest.param(EQUAL, {"count": 9}, {"parallelism": 9, "completions": 9}, id="and completions"),
        pytest.param({}, {"count": 9}, None, id="an edit of the user stays"),
        pytest.param(PARTIAL, None, None, id="without a Workload nothing is known"),
    ],
)
def test_a_stop_restores_the_number_of_pods(
    annotations: dict[str, str], pod_set: dict[str, Any] | None, want: dict[str, Any] | None
) -> None:
    if pod_set is not None:
        pod_set = {**pod_set, "template": make_template()}

    patch = restored_patch(make_job(annotations=annotations), make_template(), pod_set)

    assert patch["metadata"] == {"annotations": {"kueue.x-k8s.io/stopping": None}}
    assert patch.get("spec") == want


def test_a_stop_is_marked_only_where_something_is_to_be_restored() -> None:
    assert suspend_patch(is_restored=False) == {"spec": {"suspend": True}}
    assert suspend_patch(is_restored=True)["metadata"] == {"annotations": {"kueue.x-k8s.io/stopping": "true"}}
