"""What nodes and Jobs say about hardware and cannot be: named once, judged by the documented rule, alone.

Each case has a node `bad` beside a sound one, both of eight GPUs in two islands of four, and a Job whose
places show the rule. The rules are those of docs/extender.md, "Input that cannot be understood". Amounts of a
node that are no quantities are refused by the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.manifests import KUEUE, Object, kueue_object, make_job
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("bad-hardware")

GPU, TEAM = "nvidia.com/gpu", "test.berth.dev/team"
NODE_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ISLAND, MODEL = "berth.dev/nvlink-island.", "accelerator.sched.io/gpu-model"
LINKED = {"berth.dev/parallelism": "ddp"}
SOUND = {
    "nvidia.com/gpu.product": "A100",
    "gpu-memory-gb": "80",
    "gpu-generation": "ampere",
    f"{ISLAND}0": "0-3",
    f"{ISLAND}1": "4-7",
}
MIG = {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100-MIG-1g.10gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node `bad`, a Job of `pods` pods with `gpus` each that asks for `keys`, and where its pods go.

    `says` is about the node, `job_says` about the Job; NS is replaced by the namespace. `recorded` are the
    GPUs that other pods on the node are said to have, `milli` their share of one.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    recorded: tuple[str, ...] = ()
    milli: str = ""
    pods: int = 1
    gpus: int = 8
    keys: Mapping[str, str] = field(default_factory=dict)
    says: str = ""
    job_says: str = ""
    want: Mapping[str, int] = field(default_factory=dict)


CASES = {
    "memory with a unit: its GPUs are without memory": Case(
        labels={"gpu-memory-gb": "80GB"},
        gpus=1,
        keys={"berth.dev/gpu-memory-mib": "40000"},
        says="gpu-memory-gb='80GB', but it must be a whole number; its GPUs count as without memory",
        want={"good": 1},
    ),
    "a number of GPUs that is none: they count as the node offers them": Case(
        labels={"nvidia.com/gpu.count": "eight"},
        pods=16,
        gpus=1,
        keys={"berth.dev/gpu-milli": "1000"},
        says="nvidia.com/gpu.count='eight', but it must be a whole number of at least 1",
        want={"bad": 8, "good": 8},
    ),
    "a number of slices that is none: GPUs are whole": Case(
        labels={"nvidia.com/gpu.replicas": "0"},
        pods=4,
        gpus=4,
        keys=LINKED,
        says="nvidia.com/gpu.replicas='0', but it must be a whole number of at least 1",
        want={"bad": 2, "good": 2},
    ),
    "a generation that does not exist: it is unknown": Case(
        labels={"gpu-generation": "newest"},
        keys={"berth.dev/gpu-generation": "volta"},
        says="gpu-generation='newest', but it must be a number, a model or a family; it counts as unknown",
        want={"good": 1},
    ),
    "a price that is none: the node is used": Case(
        labels={"node-cost-per-hour": "cheap"},
        pods=2,
        says="label node-cost-per-hour is 'cheap'",
        want={"bad": 1, "good": 1},
    ),
    "an island without GPUs: it is empty": Case(
        labels={f"{ISLAND}0": "all"},
        pods=3,
        gpus=4,
        keys=LINKED,
        says=f"{ISLAND}0='all', but it must be GPUs",
        want={"bad": 1, "good": 2},
    ),
    "a GPU in two islands: it is in the first": Case(
        labels={f"{ISLAND}1": "3-6"},
        pods=3,
        gpus=4,
        keys=LINKED,
        says=f"has GPU 3 in the label {ISLAND}1 and in {ISLAND}0, but it can be in one island only",
        want={"bad": 1, "good": 2},
    ),
    "islands larger than their node: each is smaller": Case(
        labels={f"{ISLAND}0": "0-7", f"{ISLAND}1": "8-15"},
        gpus=4,
        keys=LINKED,
        says="has islands of 16 GPUs in all, but 8 GPUs; each island counts as 8 smaller",
        want={"good": 1},
    ),
    "a GPU that two pods record: it is of one, the other counts by number": Case(
        recorded=("0", "0"),
        pods=3,
        gpus=4,
        keys=LINKED,
        says="is in the annotation berth.dev/gpu-ids of the pods NS/other-0 and NS/other-1",
        want={"bad": 1, "good": 2},
    ),
    "a GPU that has more shares than it can: one is elsewhere, and others get theirs": Case(
        recorded=("0", "0"),
        milli="600",
        pods=14,
        gpus=1,
        keys={"berth.dev/gpu-milli": "1000"},
        says="is in the annotation berth.dev/gpu-ids of the pods NS/other-0 and NS/other-1",
        want={"bad": 6, "good": 8},
    ),
    "a record of more GPUs than the pod requests: it counts by number": Case(
        recorded=("0,1,2,3,4,5,6,7",),
        pods=3,
        gpus=4,
        keys=LINKED,
        says="pod NS/other-0 on node NS-bad: berth.dev/gpu-ids is '0,1,2,3,4,5,6,7', but the pod requests 1",
        want={"bad": 1, "good": 2},
    ),
    "a record that is no number: other parts count": Case(
        recorded=("first",),
        pods=3,
        gpus=4,
        keys=LINKED,
        says="pod NS/other-0 on node NS-bad: berth.dev/gpu-ids is 'first', but must be numbers of GPUs",
        want={"bad": 1, "good": 2},
    ),
    "an agent of another version: what it wrote is used": Case(
        annotations={"berth.dev/node-agent-version": "9.9.9"},
        pods=4,
        gpus=4,
        keys=LINKED,
        says="its node agent has version 9.9.9, and this controller",
        want={"bad": 2, "good": 2},
    ),
    "a pool of addresses that is none: the node offers none": Case(
        annotations={"berth.dev/addresses": "rack seven"},
        pods=2,
        says="node NS-bad has the annotation berth.dev/addresses in which",
        want={"bad": 1, "good": 1},
    ),
    "partitions by MIG: a pod gets slices": Case(labels=MIG, pods=2, want={"bad": 1, "good": 1}),
    "partitions by MIG: linked GPUs are elsewhere": Case(
        labels=MIG, pods=2, gpus=4, keys=LINKED, want={"good": 2}
    ),
    "shared GPUs: linked ones are elsewhere": Case(
        labels={"nvidia.com/gpu.replicas": "4"}, pods=2, gpus=4, keys=LINKED, want={"good": 2}
    ),
    "memory of a Job with a unit: the key is ignored": Case(
        keys={"berth.dev/gpu-memory-mib": "80Gi"},
        pods=2,
        job_says="berth.dev/gpu-memory-mib is '80Gi', but must be a whole number of MiB; it is ignored",
        want={"bad": 1, "good": 1},
    ),
    "a generation of a Job that does not exist: the key is ignored": Case(
        keys={"berth.dev/gpu-generation": "newest"},
        pods=2,
        job_says="berth.dev/gpu-generation is 'newest', but must be a number, a model or a family",
        want={"bad": 1, "good": 1},
    ),
    "a parallelism without a rule: the key is ignored": Case(
        keys={"berth.dev/parallelism": "pipeline"},
        pods=2,
        job_says="berth.dev/parallelism is 'pipeline', but must be ddp, tensor or none; it is ignored",
        want={"bad": 1, "good": 1},
    ),
    "a share that is no whole number: the pod has whole GPUs": Case(
        keys={"berth.dev/gpu-milli": "0.5"},
        pods=16,
        gpus=1,
        job_says="berth.dev/gpu-milli is '0.5', but must be a whole number from 1 to 1000",
        want={"bad": 8, "good": 8},
    ),
}


def create_node(scene: Scene, name: str, case: Case) -> str:
    """Create a ready node of the scene; return its full name."""
    full = scene.scoped(name)
    labels = {"kubernetes.io/hostname": full, TEAM: scene.namespace, **SOUND, **case.labels}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": full, "labels": labels, "annotations": dict(case.annotations)},
    }
    scene.rest.create("/api/v1/nodes", node)
    status = {"conditions": [ready], "capacity": amounts, "allocatable": amounts}
    scene.rest.patch(f"/api/v1/nodes/{full}/status", {"status": status})
    # A new node is tainted as not ready until a controller sees its status.
    scene.rest.patch(f"/api/v1/nodes/{full}", {"spec": {"taints": None}})
    return full


def create_recorded_pods(scene: Scene, node: str, case: Case) -> None:
    """Create pods that no queue knows, each with a GPU of the node and a record."""
    amount = {GPU: "1"}
    for number, gpus in enumerate(case.recorded):
        container = {"name": "main", "image": "none", "resources": {"limits": amount, "requests": amount}}
        keys = {"berth.dev/gpu-ids": gpus, "berth.dev/gpu-milli": case.milli}
        metadata = {"name": f"other-{number}", "annotations": keys}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        scene.rest.create(scene.pods, {**pod, "spec": {"nodeName": node, "containers": [container]}})


def create_queue(scene: Scene) -> None:
    """Create a queue of the scene's nodes, each a domain of its own."""
    name = scene.scoped("nodes")
    levels = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    scene.rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, levels))
    spec = {"nodeLabels": {TEAM: scene.namespace}, "topologyName": name}
    scene.rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, spec))
    amounts = [{"name": GPU, "nominalQuota": 64}]
    group = {"coveredResources": [GPU], "flavors": [{"name": name, "resources": amounts}]}
    scene.create_local_queue("main", scene.create_cluster_queue("main", group))


def job(name: str, *, gpus: int, pods: int = 1, keys: Mapping[str, str] | None = None) -> Object:
    """Return a Job whose pods request GPUs, and ask for hardware by these keys."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: gpus}}}
    return make_job(name, pods=pods, annotations=dict(keys or {}), containers=[container])


def places(scene: Scene, name: str) -> Counter[str]:
    """Return how many pods of a Job have each node, once it is admitted."""
    workload = scene.wait_true(name, "Admitted")
    assert workload["status"]["admission"] is not None
    found: Counter[str] = Counter()
    for pod_set in workload["status"]["admission"]["podSetAssignments"]:
        for count, host in zip(*_hosts(pod_set["topologyAssignment"]), strict=True):
            found[host.removeprefix(f"{scene.namespace}-")] += count
    return found


def _hosts(assignment: Object) -> tuple[list[int], list[str]]:
    """Return the numbers of pods and their hosts, in Kueue's compressed form."""
    counts: list[int] = []
    hosts: list[str] = []
    for part in assignment["slices"]:
        number = part["domainCount"]
        counts += part["podCounts"].get("individual") or [part["podCounts"]["universal"]] * number
        values: dict[str, Any] = part["valuesPerLevel"][-1]
        if "universal" in values:
            hosts += [values["universal"]] * number
        else:
            ends = values["individual"]
            hosts += [f"{ends.get('prefix', '')}{root}{ends.get('suffix', '')}" for root in ends["roots"]]
    return counts, hosts


def notes(scene: Scene, node: str) -> list[str]:
    """Return the notes of the Events about a node whose input cannot be understood."""
    return [
        one["note"]
        for one in scene.rest.get(NODE_EVENTS)["items"]
        if (one["regarding"]["name"], one["reason"], one["type"]) == (node, "InvalidSpec", "Warning")
    ]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_named_once_and_its_rule_applies(scene: Scene, case: Case) -> None:
    create_node(scene, "good", Case())
    bad = create_node(scene, "bad", case)
    create_recorded_pods(scene, bad, case)
    create_queue(scene)
    if case.says:
        wanted = case.says.replace("NS", scene.namespace)
        wait_for(lambda: any(wanted in one for one in notes(scene, bad)), f"an Event: {wanted}")

    scene.rest.create(scene.jobs, job("asks", gpus=case.gpus, pods=case.pods, keys=case.keys))

    assert places(scene, "asks") == case.want
    if case.job_says:
        wait_for(lambda: any(case.job_says in one for one in scene.notes_about("asks")), case.job_says)
    assert len(notes(scene, bad)) == bool(case.says), notes(scene, bad)
    assert notes(scene, scene.scoped("good")) == []


def test_a_job_that_needs_linked_gpus_says_that_the_only_node_shares_its_own(scene: Scene) -> None:
    create_node(scene, "bad", Case(labels={"nvidia.com/gpu.replicas": "4"}))
    create_queue(scene)
    scene.rest.create(scene.jobs, job("asks", gpus=4, keys=LINKED))
    scene.rest.create(scene.jobs, job("neighbour", gpus=4))

    scene.wait_pending("asks", "Misconfigured", "GPUs of the node are shared or partitioned")
    scene.wait_admitted("neighbour")


def test_a_label_that_changes_under_running_work_is_named_and_binds_what_comes_later(scene: Scene) -> None:
    bad = create_node(scene, "bad", Case())
    create_queue(scene)
    scene.rest.create(scene.jobs, job("runs", gpus=4, keys={MODEL: "A100"}))
    assert places(scene, "runs") == {"bad": 1}

    scene.rest.patch(f"/api/v1/nodes/{bad}", {"metadata": {"labels": {"nvidia.com/gpu.product": "V100"}}})

    wanted = f"it would refuse Workload {scene.namespace}/"
    wait_for(lambda: any(wanted in one for one in notes(scene, bad)), f"an Event: {wanted}")
    assert "GPU model mismatch (need A100, has V100)" in notes(scene, bad)[0]
    scene.rest.create(scene.jobs, job("later", gpus=4, keys={MODEL: "A100"}))
    scene.wait_pending("later", "Misconfigured", "GPU model mismatch (need A100, has V100)")
    scene.rest.create(scene.jobs, job("new", gpus=4, keys={MODEL: "V100"}))
    scene.wait_admitted("new")
    assert scene.job("runs")["spec"]["suspend"] is False
