"""What a replay creates for a trace."""

from __future__ import annotations

import pytest

from admission.cli.common.arguments import NodeCounts
from admission.cli.trial.replay_plan import RUN_LABEL, make_plan
from admission.simulation.traces import TraceError, TraceJob
from api.workload import WorkloadKey

NODES = NodeCounts(count=5, gpus_per_node=8)


def make_job(id: str, *, tenant: str = "vc_a", gpus: int = 1, at: float = 0.0) -> TraceJob:
    return TraceJob(id=id, tenant=tenant, gpus=gpus, submitted_at=at, duration_seconds=600.0)


def test_each_tenant_has_an_equal_share_and_the_cohort_what_is_left() -> None:
    plan = make_plan([make_job(str(n), tenant=f"t{n}") for n in range(3)], nodes=NODES, run_id="")

    quotas = [
        {quota["name"]: quota["nominalQuota"] for quota in group["flavors"][0]["resources"]}
        for manifest in (*plan.cluster_queues(), plan.cohort_manifest())
        for group in manifest["spec"]["resourceGroups"]
    ]

    # 5 × 64 CPUs and 5 × 8 GPUs by three, and the rest.
    assert quotas == [{"cpu": 106, "nvidia.com/gpu": 13}] * 3 + [{"cpu": 2, "nvidia.com/gpu": 1}]
    assert {manifest["spec"]["cohortName"] for manifest in plan.cluster_queues()} == {plan.cohort}


def test_names_of_the_trace_become_names_of_kubernetes() -> None:
    jobs = [make_job("A.1", tenant="vc_1"), make_job("a-1", tenant="vc-1"), make_job("x" * 90, tenant="ü")]

    plan = make_plan(jobs, nodes=NODES, run_id="")

    assert plan.names == {"vc-1": "vc-1", "vc_1": "vc-1-2", "ü": "x"}
    assert plan.keys["A.1"] == WorkloadKey("vc-1-2", "job-a-1")
    assert plan.keys["a-1"] == WorkloadKey("vc-1", "job-a-1-2")
    assert len(plan.keys["x" * 90].name) == 63


def test_on_a_shared_cluster_every_object_carries_the_run() -> None:
    plan = make_plan([make_job("1")], nodes=NODES, run_id="c0de")

    manifests = [
        *plan.namespaces(),
        plan.resource_flavor(),
        plan.cohort_manifest(),
        *plan.cluster_queues(),
        plan.submissions(1.0)[0].manifest,
    ]

    assert {manifest["metadata"]["labels"][RUN_LABEL] for manifest in manifests} == {"c0de"}
    cluster_wide = [manifest for manifest in manifests if "namespace" not in manifest["metadata"]]
    assert {m["metadata"]["name"].startswith("replay-c0de-") for m in cluster_wide} == {True}
    assert all(node.name.startswith("replay-c0de-node-") for node in plan.node_specs())


def spec_of(gpus: int) -> dict[str, object]:
    plan = make_plan([make_job("1", gpus=gpus)], nodes=NODES, run_id="")
    spec = plan.submissions(1.0)[0].manifest["spec"]
    requests = spec["template"]["spec"]["containers"][0]["resources"]["requests"]
    return {"pods": spec["parallelism"], "completions": spec["completions"], **requests}


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        pytest.param(0, {"pods": 1, "cpu": 1}, id="without a GPU a pod asks for a CPU"),
        pytest.param(1, {"pods": 1, "cpu": 4, "nvidia.com/gpu": 1}, id="a GPU comes with CPUs"),
        pytest.param(16, {"pods": 2, "cpu": 61, "nvidia.com/gpu": 8}, id="above eight a pod has its node"),
        pytest.param(12, {"pods": 2, "cpu": 61, "nvidia.com/gpu": 6}, id="also when it leaves GPUs idle"),
    ],
)
def test_what_the_pods_of_a_gang_request(gpus: int, want: dict[str, int]) -> None:
    assert spec_of(gpus) == {**want, "completions": want["pods"]}


def test_jobs_are_suspended_queue_and_run_their_recorded_time() -> None:
    plan = make_plan([make_job("1", at=1200.0)], nodes=NODES, run_id="")

    (submission,) = plan.submissions(60.0)

    assert submission.at_seconds == 20.0
    assert submission.manifest["spec"]["suspend"] is True
    assert submission.manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "replay"
    annotations = submission.manifest["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"berth.dev/simulated-runtime-seconds": "600"}


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        pytest.param(41, NODES, id="more GPUs than there are"),
        pytest.param(14, NodeCounts(count=1, gpus_per_node=16), id="more whole nodes than there are"),
        pytest.param(1, NodeCounts(count=4, gpus_per_node=0), id="a GPU where there is none"),
    ],
)
def test_a_job_that_never_fits_is_refused_before_anything_starts(gpus: int, nodes: NodeCounts) -> None:
    with pytest.raises(TraceError, match=f"Job big of vc_a wants {gpus} GPUs.*more --nodes"):
        make_plan([make_job("big", gpus=gpus)], nodes=nodes, run_id="")
