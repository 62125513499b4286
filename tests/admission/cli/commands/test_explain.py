"""`berth explain`: why a team's Workload waits, from the objects of a cluster without any controller."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.resources import (
    ADMISSION_POLICIES,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from api.parsing.times import to_rfc3339

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
FLAVOR = {"nodeLabels": {"gpu": "a100"}, "topologyName": "default"}
TOPOLOGY = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}


def make_node(name: str, rack: str | None, *, is_ready: bool = True) -> dict[str, Any]:
    labels = {HOST: name, "gpu": "a100", **({RACK: rack} if rack is not None else {})}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {GPU: "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
        },
    }


def make_workload(name: str, *, pods: int, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
    pod_set = {
        "name": "main",
        "count": pods,
        "template": {"spec": {"containers": [container]}},
        "topologyRequest": {"required": RACK},
    }
    meta = {"name": name, "namespace": "speech"}
    return {"metadata": meta, "spec": {"queueName": "main", "podSets": [pod_set], **spec}}


def own(workload: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """Return the Workload as the Job's."""
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    metadata = {**workload["metadata"], "ownerReferences": [{**owner, "controller": True}]}
    return {**workload, "metadata": metadata}


@pytest.fixture
def cluster(bare_server: str) -> str:
    """Give a cluster of two racks of two nodes, one of them not ready, and quota for 64 GPUs."""
    nodes = [
        make_node("n1", "a"),
        make_node("n2", "a"),
        make_node("n3", "b"),
        make_node("n4", "b", is_ready=False),
        make_node("n5", None),
    ]
    return fill(
        bare_server,
        (TOPOLOGIES, {"metadata": {"name": "default"}, "spec": TOPOLOGY}),
        (RESOURCE_FLAVORS, {"metadata": {"name": "a100"}, "spec": FLAVOR}),
        (CLUSTER_QUEUES, cluster_queue("speech", flavor="a100", nominal={GPU: 64}, cohort="research")),
        (NAMESPACES, namespace("speech")),
        (LOCAL_QUEUES, local_queue("main", "speech", "speech")),
        *((NODES, node) for node in nodes),
    )


def fill(kubeconfig: str, *objects: tuple[Resource, dict[str, Any]]) -> str:
    """Create the objects and return the kubeconfig."""

    async def put() -> None:
        async with await KubeClient.connect(kubeconfig) as client:
            await install_kinds(client)
            for resource, manifest in objects:
                head = {"apiVersion": resource.api_version, "kind": resource.kind}
                await create(client, resource, {**head, **manifest})
                if resource is NODES:
                    # The API server taints a new node until its kubelet says that it is ready.
                    untainted = b'{"spec": {"taints": null}}'
                    await client.merge_patch(NODES, manifest["metadata"]["name"], untainted)
                elif resource is WORKLOADS and "status" in manifest:
                    status = json.dumps({"status": manifest["status"]}).encode()
                    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
                    await client.merge_patch(WORKLOADS, name, status, namespace, subresource="status")

    asyncio.run(put())
    return kubeconfig


def explain(capsys: pytest.CaptureFixture[str], kubeconfig: str, *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", "--kubeconfig", kubeconfig, *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def cells(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


@pytest.mark.covers("002_34")
def test_every_domain_and_node_is_shown_with_its_count(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, (WORKLOADS, make_workload("w", pods=3)))

    code, out, _ = explain(capsys, cluster, "speech/w")

    assert code == ExitCode.DOES_NOT_HOLD
    assert out.startswith("speech/w: pending in speech, 1 of 1 in the queue\n")
    assert ["a100", GPU, "24", "64", "64", "fits"] in cells(out)
    assert f"topology of flavor a100: 3 pods in one {RACK}" in out
    assert ["a", "2", "2"] in cells(out)
    assert ["n1,", "n2", "1", "1"] in cells(out)
    assert ["b", "1", "1"] in cells(out)
    assert "n4: not ready" in out
    assert f"n5: lacks the label {RACK}" in out


def test_each_part_of_a_score_is_shown_where_flavors_are_chosen_by_it(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"metadata": {"name": "scores"}, "spec": {"placement": {"flavors": {}}}}
    fill(cluster, (ADMISSION_POLICIES, policy), (WORKLOADS, make_workload("w", pods=3)))

    _, out, _ = explain(capsys, cluster, "speech/w")
    _, as_json, _ = explain(capsys, cluster, "speech/w", "-o", "json")

    (line,) = [one for one in out.splitlines() if "no price" in one]
    assert line.split()[0] == "a100"
    assert "0.00 (no price)" in line
    assert "1.00 (0% left over)" in line
    (flavor,) = json.loads(as_json)["podSets"][0]["flavors"]
    assert flavor["score"]["terms"] == {
        "runSeconds": 3600.0,
        "waitSeconds": pytest.approx(flavor["score"]["terms"]["waitSeconds"]),
        "cost": None,
        "lostSeconds": 0.0,
        "generation": 0,
        "leftOver": 0.0,
    }


def test_a_running_workload_shows_the_better_flavor_that_it_may_move_to(
    bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"placement": {"flavors": {"promote": {}}}}}
    priced = [
        {"metadata": {"name": name, "annotations": {"berth.dev/cost-per-device-hour": price}}, "spec": {}}
        for name, price in (("dear", "4"), ("cheap", "1"))
    ]
    queue = cluster_queue("speech", flavor="dear", nominal={GPU: 8}, cohort="research")
    (group,) = queue["spec"]["resourceGroups"]
    group["flavors"].append({**group["flavors"][0], "name": "cheap"})
    workload = make_workload("w", pods=1)
    del workload["spec"]["podSets"][0]["topologyRequest"]
    true = {"status": "True", "message": "", "lastTransitionTime": to_rfc3339(time.time())}
    assigned = {"name": "main", "count": 1, "flavors": {GPU: "dear"}, "resourceUsage": {GPU: "8"}}
    workload["status"] = {
        "admission": {"clusterQueue": "speech", "podSetAssignments": [assigned]},
        "conditions": [{"type": one, "reason": one, **true} for one in ("QuotaReserved", "Admitted")],
    }
    fill(
        bare_server,
        *((RESOURCE_FLAVORS, one) for one in priced),
        (CLUSTER_QUEUES, queue),
        (NAMESPACES, namespace("speech")),
        (LOCAL_QUEUES, local_queue("main", "speech", "speech")),
        (ADMISSION_POLICIES, policy),
        (WORKLOADS, workload),
    )

    _, out, _ = explain(capsys, bare_server, "speech/w")
    move = json.loads(explain(capsys, bare_server, "speech/w", "-o", "json")[1])["betterFlavor"]

    assert "cheap is better than dear: the score gains 0." in out
    assert (move["from"], move["to"]) == (["dear"], ["cheap"])
    assert move["gain"] > 0.05


def test_the_name_of_its_job_will_do(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def put() -> None:
        async with await KubeClient.connect(cluster) as client:
            pods = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
            job = {"metadata": {"name": "train", "namespace": "speech"}, "spec": {"template": {"spec": pods}}}
            made = await create(client, JOBS, {"apiVersion": "batch/v1", "kind": "Job", **job})
            head = {"apiVersion": WORKLOADS.api_version, "kind": "Workload"}
            await create(client, WORKLOADS, {**head, **own(make_workload("w", pods=1), made)})

    asyncio.run(put())

    assert explain(capsys, cluster, "-n", "speech", "train")[1].startswith("speech/w: pending")


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param({"pods": 9}, "more than this ClusterQueue can ever use", id="more than there can be"),
        pytest.param({"pods": 1, "gpus": 16}, f'resource "{GPU}"', id="a pod that no node could ever hold"),
        pytest.param(
            {"pods": 1, "queueName": "typo"},
            "LocalQueue typo doesn't exist",
            id="a queue that does not exist",
        ),
    ],
)
def test_a_workload_that_can_never_fit_gets_a_reason(
    workload: dict[str, Any], want: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, (WORKLOADS, make_workload("w", **workload)))

    assert want in explain(capsys, cluster, "speech/w")[1]


def test_the_expected_start_is_shown_or_the_one_before_it(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make_workload("a", pods=3), make_workload("b", pods=3, priority=-1)
    first["metadata"]["annotations"] = {"berth.dev/planned-start": "2030-01-01T00:00:00Z"}
    fill(cluster, (WORKLOADS, first), (WORKLOADS, second))

    assert "promised to start at 2030-01-01T00:00:00Z" in explain(capsys, cluster, "speech/a")[1]
    assert "expected to start after 2030-01-01T00:00:00Z" in explain(capsys, cluster, "speech/b")[1]
    assert json.loads(explain(capsys, cluster, "speech/b", "-o", "json")[1])["expectedAfter"]


def test_a_workload_that_depends_on_others_names_them(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = make_workload("b", pods=1)
    waiting["metadata"]["annotations"] = {"berth.dev/depends-on": "a"}
    fill(cluster, (WORKLOADS, make_workload("a", pods=3)), (WORKLOADS, waiting))

    out = explain(capsys, cluster, "speech/b")[1]

    assert "It waits until what it depends on has succeeded." in out
    assert "WaitingForDependencies: Depends on a: waits" in out


def test_a_workload_that_depends_on_running_ones_shows_which_is_expected_to_end_last(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = make_workload("b", pods=1)
    waiting["metadata"]["annotations"] = {"berth.dev/depends-on": "a, c"}
    first, last = running("a", pods=1, seconds=10**8), running("c", pods=1, seconds=10**9)
    for one in (first, last):
        one["metadata"]["namespace"] = one["status"]["admission"]["clusterQueue"] = "speech"
    fill(cluster, (WORKLOADS, first), (WORKLOADS, last), (WORKLOADS, waiting))

    out = explain(capsys, cluster, "speech/b")[1]
    found = json.loads(explain(capsys, cluster, "speech/b", "-o", "json")[1])

    assert f"has succeeded: c is expected to end last, at {found['expectedAfter']} (in " in out


def test_without_the_configuration_devices_by_claim_are_left_to_the_workloads_condition(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = make_workload("w", pods=1)
    workload["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimTemplateName": "gone"}
    ]
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Misconfigured",
        "message": "the class is not mapped",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    fill(cluster, (WORKLOADS, {**workload, "status": {"conditions": [condition]}}))

    out = explain(capsys, cluster, "speech/w")[1]

    assert "Misconfigured: the class is not mapped" in out
    assert "gone" not in out


def test_scripts_read_the_same_as_json(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cluster, (WORKLOADS, make_workload("w", pods=3)))

    _, out, _ = explain(capsys, cluster, "speech/w", "-o", "json")

    found = json.loads(out)
    (flavor,) = found["podSets"][0]["flavors"]
    assert (found["state"], found["position"], found["waiting"]) == ("pending", 1, 1)
    assert flavor["quota"] == [{"resource": GPU, "wanted": 24, "free": 64, "most": 64}]
    racks = {one["values"][0]: one["fits"] for one in flavor["topology"]["domains"] if one["level"] == 0}
    assert racks == {"a": 2, "b": 1}


RUNNING_SINCE = "2030-01-01T00:00:00Z"


def running(name: str, *, pods: int, seconds: int | None) -> dict[str, Any]:
    """Return a Workload of the other queue that holds quota, and says how long it runs."""
    workload = make_workload(name, pods=pods)
    workload["metadata"]["namespace"] = "vision"
    del workload["spec"]["podSets"][0]["topologyRequest"]
    if seconds is not None:
        workload["spec"]["maximumExecutionTimeSeconds"] = seconds
    gpus = str(8 * pods)
    assigned = {"name": "main", "count": pods, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: gpus}}
    true = {"status": "True", "message": "", "lastTransitionTime": RUNNING_SINCE}
    workload["status"] = {
        "admission": {"clusterQueue": "vision", "podSetAssignments": [assigned]},
        "conditions": [{"type": one, "reason": one, **true} for one in ("QuotaReserved", "Admitted")],
    }
    return workload


@pytest.fixture
def shared(bare_server: str) -> str:
    """Give a cluster without nodes: the other queue holds its 16 GPUs and the 8 of this one."""
    return fill(
        bare_server,
        (RESOURCE_FLAVORS, {"metadata": {"name": "a100"}, "spec": {}}),
        (CLUSTER_QUEUES, cluster_queue("speech", flavor="a100", nominal={GPU: 8}, cohort="research")),
        (CLUSTER_QUEUES, cluster_queue("vision", flavor="a100", nominal={GPU: 16}, cohort="research")),
        *((NAMESPACES, namespace(name)) for name in ("speech", "vision")),
        *((LOCAL_QUEUES, local_queue("main", name, name)) for name in ("speech", "vision")),
        (WORKLOADS, running("known", pods=1, seconds=3600)),
        (WORKLOADS, running("unknown", pods=2, seconds=None)),
    )


def plain(name: str, **fields: Any) -> dict[str, Any]:
    """Return a Workload that asks for no topology."""
    workload = make_workload(name, **fields)
    del workload["spec"]["podSets"][0]["topologyRequest"]
    return workload


def test_a_waiting_workload_shows_the_holders_of_what_it_lacks_and_their_settings(
    shared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(shared, (WORKLOADS, plain("w", pods=1)))

    out = explain(capsys, shared, "speech/w")[1]

    assert f"It is at position 1; no start is known; it lacks 8 of 8 {GPU} in flavor a100." in out
    kept = "not preempted: preemption.reclaimWithinCohort of ClusterQueue speech is Never"
    assert f"vision/known (8), is expected to end at 2030-01-01T01:00:00Z; {kept}" in out
    assert f"vision/unknown (16), of unknown length; {kept}" in out
    assert "no start can rely on the end of vision/unknown: declare berth.dev/expected-runtime-seconds" in out
    assert f"raise the quota of ClusterQueue speech by 8 {GPU} in flavor a100: starts now" in out


def test_a_workload_that_is_too_large_shows_the_most_that_its_queue_may_use(
    shared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(shared, (WORKLOADS, plain("w", pods=4)))

    _, out, _ = explain(capsys, shared, "speech/w", "-o", "json")

    found = json.loads(out)
    assert found["verdict"] == (
        f"It cannot start as it is: it asks for 32 {GPU}, and ClusterQueue speech may use at most 24 of"
        " flavor a100, with all that its cohort lends."
    )
    assert [(one["kind"], one["change"]) for one in found["help"]] == [
        ("quota", f"raise the quota of ClusterQueue speech by 32 {GPU} in flavor a100")
    ]


def make_job(name: str, labels: dict[str, str], *, gpus: int = 8) -> dict[str, Any]:
    """Return a Job as its owner writes it."""
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    pods = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "x", "resources": resources}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "speech", "labels": labels},
        "spec": {"suspend": True, "template": {"spec": pods}},
    }


@pytest.mark.parametrize(
    ("gpus", "want_code", "want"),
    [
        pytest.param(8, ExitCode.DONE, "would start now", id="one that fits"),
        pytest.param(72, ExitCode.DOES_NOT_HOLD, "ExceedsMaxQuota", id="one that is too large"),
    ],
)
def test_a_job_is_explained_before_it_is_submitted(
    gpus: int,
    want_code: ExitCode,
    want: str,
    cluster: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(make_job("new", {"kueue.x-k8s.io/queue-name": "main"}, gpus=gpus)))

    code, out, _ = explain(capsys, cluster, "-f", str(manifest))

    assert code == want_code
    assert out.startswith("speech/job-new-")
    assert want in out
    assert explain(capsys, cluster, "speech/new")[0] == ExitCode.WRONG_USAGE


def test_what_a_job_would_do_to_others_is_shown(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, (WORKLOADS, plain("waiting", pods=3)))
    manifest = tmp_path / "job.json"
    queue = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "urgent"}
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10,
    }
    job = make_job("new", queue)
    job["spec"] |= {"parallelism": 3}
    manifest.write_text(json.dumps({"kind": "List", "items": [urgent, job]}))

    found = json.loads(explain(capsys, cluster, "-f", str(manifest), "-o", "json")[1])

    assert [one["startsAt"] is not None for one in found["workloads"]] == [True]
    assert [(one["name"], one["startsAt"]) for one in found["others"]] == [("waiting", None)]


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, "it has no label kueue.x-k8s.io/queue-name", id="no queue"),
        pytest.param(
            {"kueue.x-k8s.io/queuename": "main"},
            "its label kueue.x-k8s.io/queuename looks like a typing error",
            id="a typing error",
        ),
        pytest.param(
            {"kueue.x-k8s.io/queue-name": "main"},
            "the controller has not seen it yet, or does not manage its namespace",
            id="not seen yet",
        ),
    ],
)
def test_a_job_without_a_workload_shows_why_it_has_none(
    labels: dict[str, str], want: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, (JOBS, make_job("train", labels)))

    code, _, err = explain(capsys, cluster, "speech/train")

    assert code == ExitCode.DOES_NOT_HOLD
    assert f"Job speech/train has no Workload: {want}" in err or want in err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["speech/missing"], "namespace speech has no Workload missing", id="unknown Workload"),
        pytest.param(["speech/w", "-n", "vision"], "speech/w is not in -n vision", id="two namespaces"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    arguments: list[str], want: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = explain(capsys, cluster, *arguments)

    assert (code, want in err) == (ExitCode.WRONG_USAGE, True)


def test_an_object_that_cannot_be_read_is_named_and_the_others_count(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = cluster_queue("broken", flavor="a100", nominal={GPU: 8}, cohort="research")
    broken["spec"]["namespaceSelector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    fill(cluster, (CLUSTER_QUEUES, broken), (WORKLOADS, make_workload("w", pods=1)))

    _, out, err = explain(capsys, cluster, "speech/w")

    assert "ClusterQueue broken" in err
    assert "1 of 1 in the queue" in out


def test_the_place_and_end_of_a_running_workload_are_shown_and_nothing_is_missing(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = make_workload("w", pods=8, maximumExecutionTimeSeconds=3600)
    assigned = {"name": "main", "count": 8, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: "64"}}
    since = "2026-01-31T12:00:00Z"
    true = {"status": "True", "message": "", "lastTransitionTime": since}
    workload["status"] = {
        "admission": {"clusterQueue": "speech", "podSetAssignments": [assigned]},
        "conditions": [{"type": one, "reason": one, **true} for one in ("QuotaReserved", "Admitted")],
    }
    fill(cluster, (WORKLOADS, workload))

    code, out, _ = explain(capsys, cluster, "speech/w")

    assert code == ExitCode.DONE
    assert out.startswith("speech/w: admitted in speech\nruns since 2026-01-31T12:00:00Z")
    assert "is stopped at 2026-01-31T13:00:00Z at the latest" in out
    assert "pod set main, 8 pods, runs on a100 for nvidia.com/gpu" in out
    assert "more needed" not in out
    found = json.loads(explain(capsys, cluster, "speech/w", "-o", "json")[1])
    assert (found["state"], found["podSets"]) == ("admitted", [])
    assert found["holding"]["expectedEnd"] == "2026-01-31T13:00:00Z"


def test_one_that_saves_on_its_way_out_says_so(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    workload = leaving()
    own = {"berth.dev/checkpoint-on-sigterm": "true", "berth.dev/checkpoint-save-seconds": "10"}
    workload["metadata"]["annotations"] = own
    fill(cluster, (WORKLOADS, workload))

    _, out, _ = explain(capsys, cluster, "speech/w")

    assert "Preempted: Saves a checkpoint at SIGTERM, within the 30 s that its pods have to end" in out


def test_one_that_its_budget_keeps_says_so(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"type": "berth.dev/DisruptionAllowed", "status": "False", "reason": "InsufficientPods"}
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "A budget keeps it"}
    fill(cluster, (WORKLOADS, leaving({**kept, **at})))

    _, out, _ = explain(capsys, cluster, "speech/w")

    assert "Preempted: A budget keeps it: Preempted to accommodate another" in out


def leaving(*conditions: dict[str, str]) -> dict[str, Any]:
    """Return a Workload of one pod that was asked to stop, with more conditions."""
    workload = make_workload("w", pods=1)
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True", "message": ""}
    usage = {"name": "main", "count": 1, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: "8"}}
    workload["status"] = {
        "admission": {"clusterQueue": "speech", "podSetAssignments": [usage]},
        "conditions": [
            {**at, "type": "QuotaReserved", "reason": "QuotaReserved"},
            {**at, "type": "Admitted", "reason": "Admitted"},
            {**at, "type": "Evicted", "reason": "Preempted", "message": "Preempted to accommodate another"},
            *conditions,
        ],
    }
    return workload


def uid_of(kubeconfig: str, name: str) -> str:
    """Return the uid of a Workload."""

    async def ask() -> str:
        async with await KubeClient.connect(kubeconfig) as client:
            raw = await client.request("GET", WORKLOADS.path("speech", name))
        return str(json.loads(raw)["metadata"]["uid"])

    return asyncio.run(ask())


def evicted(name: str, *, uid: str, **annotations: str) -> dict[str, Any]:
    """Return a Workload that was stopped twice, the last time for the one of that uid."""
    workload = make_workload(name, pods=1)
    workload["metadata"]["annotations"] = {f"berth.dev/{key}": text for key, text in annotations.items()}
    message = f"Preempted to accommodate a workload (UID: {uid}, JobUID: UNKNOWN) due to prioritization"
    at = {"lastTransitionTime": "2026-01-31T12:00:00Z", "message": message}
    workload["status"] = {
        "accumulatedPastExecutionTimeSeconds": 7200,
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
        "conditions": [
            {**at, "type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota"},
            {**at, "type": "Evicted", "status": "True", "reason": "Preempted"},
        ],
    }
    return workload


@pytest.mark.parametrize(
    ("own", "want", "lost"),
    [
        pytest.param(
            {"checkpoint-time": "2026-01-31T11:30:00Z", "checkpoint-step": "500"},
            "checkpoint of 2026-01-31T11:30:00Z, step 500; at most the last 30.0 min of its work are lost",
            1800,
            id="it has reported one",
        ),
        pytest.param(
            {"checkpoint-time": "2026-01-31T12:00:10Z"},
            "continues from its checkpoint of 2026-01-31T12:00:10Z; nothing is lost",
            0,
            id="it saved on its way out",
        ),
        pytest.param(
            {},
            "reported no checkpoint: unless it saved without a report, it starts from the beginning",
            None,
            id="it reported nothing",
        ),
    ],
)
def test_a_victim_shows_its_preemptor_and_where_it_resumes(
    cluster: str, capsys: pytest.CaptureFixture[str], own: dict[str, str], want: str, lost: float | None
) -> None:
    fill(cluster, (WORKLOADS, make_workload("urgent", pods=1)))
    found = json.loads(explain(capsys, cluster, "speech/urgent", "-o", "json")[1])
    assert (found["lastEviction"], found["evictions"]) == (None, 0)
    fill(cluster, (WORKLOADS, evicted("w", uid=uid_of(cluster, "urgent"), **own)))

    _, out, _ = explain(capsys, cluster, "speech/w")

    assert "stopped at 2026-01-31T12:00:00Z (" in out
    assert "for speech/urgent: Preempted" in out
    assert want in " ".join(out.split())
    assert "stopped 2 times so far: 2 Preempted" in out
    last = json.loads(explain(capsys, cluster, "speech/w", "-o", "json")[1])["lastEviction"]
    assert (last["preemptor"], last["lostSeconds"]) == ("speech/urgent", lost)


@pytest.mark.parametrize(
    ("times", "want"), [(1, "Z; the last 30.0 min"), (2, "Z; at most the last 30.0 min")]
)
def test_only_of_a_first_attempt_is_it_known_how_much_was_lost(
    cluster: str, capsys: pytest.CaptureFixture[str], times: int, want: str
) -> None:
    workload = evicted("w", uid="u-1", **{"checkpoint-time": "2026-01-31T11:30:00Z"})
    workload["status"]["schedulingStats"]["evictions"][0]["count"] = times
    fill(cluster, (WORKLOADS, workload))

    assert want in " ".join(explain(capsys, cluster, "speech/w")[1].split())


def test_the_preemptor_may_be_gone(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cluster, (WORKLOADS, evicted("w", uid="u-1")))

    assert (
        "for a Workload that no longer exists (UID u-1): Preempted" in explain(capsys, cluster, "speech/w")[1]
    )
