"""`berth decide` with a policy for preemption: what is evicted, as a user sees it before it is applied."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace, resource_flavor
from api.keys import CHECKPOINT_TIME
from api.parsing.times import to_rfc3339

KUEUE = "kueue.x-k8s.io/v1beta2"
HOUR = 3600


def make_workload(
    name: str, *, gpus: int = 8, priority: int = 0, spec: dict[str, Any] | None = None, **own: str
) -> dict[str, Any]:
    """Return a Workload that asks for `gpus` GPUs; `own` are its berth.dev annotations."""
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    annotations = {f"berth.dev/{key.replace('_', '-')}": text for key, text in own.items()}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "speech", "uid": name, "annotations": annotations},
        "spec": {"queueName": "main", "priority": priority, "podSets": [pod_set], **(spec or {})},
    }


def running(workload: dict[str, Any], *, hours: float = 10) -> dict[str, Any]:
    """Return the Workload as it is `hours` after its admission, with its checkpoint."""
    since = to_rfc3339(time.time() - hours * HOUR)
    annotations = workload["metadata"]["annotations"]
    if CHECKPOINT_TIME in annotations:
        annotations = {
            **annotations,
            CHECKPOINT_TIME: to_rfc3339(time.time() - float(annotations[CHECKPOINT_TIME]) * HOUR),
        }
        workload = {**workload, "metadata": {**workload["metadata"], "annotations": annotations}}
    gpus = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"][GPU]
    assigned = {"name": "main", "count": 1, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: gpus}}
    reasons = {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted"}
    status = {
        "admission": {"clusterQueue": "speech", "podSetAssignments": [assigned]},
        "conditions": [
            {"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": since}
            for type_, reason in reasons.items()
        ],
    }
    return {**workload, "status": status}


def finished(workload: dict[str, Any], *, hours: float) -> dict[str, Any]:
    """Return the Workload as it is since it ended well a moment ago, having run for `hours`."""
    ran = running(workload, hours=hours)
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    conditions = [*ran["status"]["conditions"], {**over, "lastTransitionTime": to_rfc3339(time.time())}]
    return {**ran, "status": {**ran["status"], "conditions": conditions}}


def saved(hours_ago: float) -> str:
    """Return a checkpoint that is so old when the test runs, however long after its table was read."""
    return str(hours_ago)


def victims(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *workloads: dict[str, Any],
    estimates: dict[str, Any] | None = None,
    **rules: Any,
) -> list[str]:
    """Return the Workloads evicted on 16 GPUs by a policy with these rules."""
    queue = cluster_queue("speech", flavor="a100", nominal={GPU: 16}, cohort=None)
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "policy"},
        "spec": {"preemption": {"rules": rules}, **({"estimates": estimates} if estimates else {})},
    }
    items = [resource_flavor("a100", node_pool="a100"), queue, namespace("speech"), policy]
    items += [local_queue("main", "speech", "speech"), *workloads]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["decide", "-f", str(path), "-o", "json"]) == 0
    return sorted(key.partition("/")[2] for key in json.loads(capsys.readouterr().out)["evictions"])


TRAINING: dict[str, Any] = {"workload_type": "training"}
URGENT = make_workload("urgent", priority=5000)


@pytest.mark.parametrize(
    ("rule", "spared", "other"),
    [
        pytest.param(
            {"protectPriority": {}},
            make_workload("spared", priority=1000, checkpoint_time=saved(0), **TRAINING),
            make_workload("other", priority=1001),
            marks=pytest.mark.covers("001_27"),
            id="training of priority 1000 and more is never a victim",
        ),
        pytest.param(
            {"preferInference": {}},
            make_workload("spared", checkpoint_time=saved(0.2), **TRAINING),
            make_workload("other", workload_type="inference"),
            marks=pytest.mark.covers("001_28"),
            id="inference goes before training of its priority",
        ),
        pytest.param(
            {"protectNearlyDone": {}},
            make_workload("spared", spec={"maximumExecutionTimeSeconds": 11 * HOUR}, **TRAINING),
            make_workload("other", priority=1, spec={"maximumExecutionTimeSeconds": 30 * HOUR}, **TRAINING),
            marks=pytest.mark.covers("001_29"),
            id="training with less than two hours left is never a victim",
        ),
        pytest.param(
            {"protectNearlyDone": {}},
            make_workload("spared", job_deadline_seconds=str(11 * HOUR), **TRAINING),
            make_workload("other", priority=1, expected_runtime_seconds=str(11 * HOUR), **TRAINING),
            marks=pytest.mark.covers("001_29"),
            id="a Job's deadline says how much is left, what it expects of itself does not",
        ),
        pytest.param(
            {"protectUncheckpointed": {}},
            make_workload("spared", **TRAINING),
            make_workload("other", priority=1, checkpoint_time=saved(0.5), **TRAINING),
            marks=pytest.mark.covers("001_30"),
            id="training without checkpoints is never a victim",
        ),
        pytest.param(
            {"requireFreshCheckpoint": {}},
            make_workload("spared", checkpoint_time=saved(0.6), **TRAINING),
            make_workload("other", priority=1, checkpoint_time=saved(0.4), **TRAINING),
            marks=pytest.mark.covers("001_31"),
            id="training is a victim for half an hour after a checkpoint",
        ),
    ],
)
def test_a_rule_of_the_policy_decides_which_workload_is_evicted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rule: dict[str, Any],
    spared: dict[str, Any],
    other: dict[str, Any],
) -> None:
    cluster = (running(spared), running(other), URGENT)

    assert victims(tmp_path, capsys, *cluster, **rule) == ["other"]
    assert victims(tmp_path, capsys, *cluster) == ["spared"]


@pytest.mark.parametrize(
    ("took", "want"),
    [
        pytest.param(11, "other", id="less than two hours are left"),
        pytest.param(13, "spared-9", id="three hours are left"),
        pytest.param(9, "spared-9", id="it has taken longer than they did"),
    ],
)
@pytest.mark.covers("001_29")
def test_earlier_runs_show_how_much_of_a_training_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], took: float, want: str
) -> None:
    earlier = [finished(make_workload(f"spared-{index}", **TRAINING), hours=took) for index in range(3)]
    # What it says of itself takes nothing from what is known of others like it.
    spared = running(make_workload("spared-9", expected_runtime_seconds=str(90 * HOUR), **TRAINING))
    cluster = (*earlier, spared, running(make_workload("other", priority=1)), URGENT)

    assert victims(tmp_path, capsys, *cluster, estimates={}, protectNearlyDone={}) == ["spared-9"]
    estimates = {"minObservations": 3}
    assert victims(tmp_path, capsys, *cluster, estimates=estimates, protectNearlyDone={}) == [want]


@pytest.mark.covers("001_32", "001_33")
@pytest.mark.parametrize(
    ("small_saved", "large_saved", "want"),
    [
        pytest.param(0.5, 0.01, ["large"], id="of the large one, which has just saved"),
        pytest.param(0.01, 0.5, ["small-0", "small-1"], id="of both small ones, which have"),
    ],
)
def test_as_few_device_seconds_as_possible_are_lost_and_gangs_go_whole(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    small_saved: float,
    large_saved: float,
    want: list[str],
) -> None:
    small = [
        running(make_workload(f"small-{index}", gpus=4, checkpoint_time=saved(small_saved), **TRAINING))
        for index in range(2)
    ]
    large = running(make_workload("large", checkpoint_time=saved(large_saved), **TRAINING))

    assert victims(tmp_path, capsys, *small, large, URGENT) == want


@pytest.mark.covers("001_35")
def test_a_long_training_is_not_taken_where_a_short_service_will_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = running(make_workload("training", **TRAINING), hours=72)
    service = running(make_workload("service", workload_type="inference"), hours=73)

    assert victims(tmp_path, capsys, training, service, URGENT, preferInference={}) == ["service"]
