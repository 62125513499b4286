"""A scene in which all happens that the dashboards count, and a real Prometheus that scrapes it.

Eight nodes in two racks. `speech` and `vision` share a cohort, `web` has its own quota: speech borrows and is
preempted, web's gangs are promised starts that work delays, nodes fail, and users make mistakes. Every act is
played more than once, as Prometheus sees a rate only between two samples.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from api import keys
from api.parsing.times import to_rfc3339
from tests.children import Child, Port
from tests.integration.conftest import Cluster, rest_of
from tests.integration.manifests import KUEUE, POOL, Object, is_true, kueue_object, make_job, quota
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

ROOT = Path(__file__).parents[2]
GPU, HOST, RACK = "nvidia.com/gpu", "kubernetes.io/hostname", "test.berth.dev/rack"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
ROUNDS = 2
# What has only just started is stopped without a request to save.
_WORTH_SAVING_SECONDS = 2.0
_REPLACED = 'sum(topology_scheduler_recovery_duration_seconds_count{result="replaced"})'
_POLICY = {
    "backfill": {"mode": "EASY"},
    "estimates": {},
    "placement": {"strategy": "Consolidated", "recovery": {}},
    "preemption": {"minimumRuntimeSeconds": 0},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus at `url`."""

    url: str

    def series(self, query: str, *, seconds: float, step: float = 1.0) -> list[Object]:
        """Return the series of a query over the last `seconds`. Raises AssertionError if it is refused."""
        now = self._ask("query", query="time()")["result"][0]
        asked = {"query": query, "start": now - seconds, "end": now, "step": step}
        return list(self._ask("query_range", **asked)["result"])

    def value(self, query: str) -> float:
        """Return the value of a query without labels; 0 if there is none yet."""
        found = self._ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def _ask(self, what: str, **parameters: Any) -> Any:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=20.0) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from error


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run a Prometheus with the shipped rules, which scrapes `target` every second."""
    port = Port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy/monitoring/rules.yaml")],
        "scrape_configs": [{"job_name": "berth", "static_configs": [{"targets": [target]}]}],
    }
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    arguments = [
        "/usr/bin/env",
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port.number}",
    ]
    found = Prometheus(url=f"http://127.0.0.1:{port.number}")
    with Child(name="prometheus", arguments=arguments, log=folder / "prometheus.log") as child:
        child.wait_ready(lambda: _answers(f"{found.url}/-/ready"), timeout_seconds=60.0)
        yield found
    port.release()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0):
            return True
    except OSError:
        return False


@contextmanager
def played(folder: Path) -> Iterator[Prometheus]:
    """Play the scene under a controller with the shipped configuration; give the Prometheus that saw it."""
    kubeconfig = folder / "kubeconfig"
    arguments = [BERTH, "apiserver", "--nodes", "8x8", "--kubeconfig", str(kubeconfig)]
    with Child(name="berth-apiserver", arguments=arguments, log=folder / "apiserver.log") as server:
        server.wait_ready(kubeconfig.exists, timeout_seconds=90.0)
        cluster = Cluster(rest=rest_of(kubeconfig), kubeconfig=str(kubeconfig), pool="node")
        play = _Play(cluster.new_scene())
        play.create_queues()
        controller = Replica(str(kubeconfig), folder, config=shipped_config())
        with controller.child:
            controller.wait_leading()
            target = urllib.parse.urlsplit(controller.urls()["metrics"]).netloc
            with prometheus(folder, target) as found:
                for number in range(ROUNDS):
                    play.round(number, controller, found)
                play.leave()
                yield found


def shipped_config() -> str:
    """Return the configuration that deploy/ gives to the controller."""
    return str(yaml.safe_load((ROOT / "deploy/config.yaml").read_text())["data"]["config.yaml"])


class _Play:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def create_queues(self) -> None:
        """Create the racks, a flavor on them, and three queues under one policy."""
        scene, rest = self._scene, self._scene.rest
        for number, node in enumerate(self._nodes()):
            labels = {RACK: f"rack-{number // 4}", "node-cost-per-hour": "32"}
            rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
        levels = [{"nodeLabel": label} for label in (RACK, HOST)]
        topology = kueue_object("Topology", {"name": "racks"}, {"levels": levels})
        rest.create(f"/apis/{KUEUE}/topologies", topology)
        labelled = {"nodeLabels": {POOL: scene.pool}, "topologyName": "racks"}
        rest.create(
            f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": "a100"}, labelled)
        )
        preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        for name, gpus, cohort in (("speech", 24, "research"), ("vision", 24, "research"), ("web", 16, "")):
            spec: Object = {"namespaceSelector": {}, "resourceGroups": [quota("a100", GPU, gpus)]}
            spec |= {"cohortName": cohort} if cohort else {}
            body = kueue_object("ClusterQueue", {"name": name}, {**spec, "preemption": preemption})
            rest.create(f"/apis/{KUEUE}/clusterqueues", body)
            scene.create_local_queue(name, name)
        policy = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": "all"}}
        rest.create(POLICIES, {**policy, "spec": _POLICY})

    def round(self, number: int, controller: Replica, seen: Prometheus) -> None:
        """Play one round of all that happens."""
        self._short_jobs(number)
        self._promise(number)
        self._reclaim(number)
        self._lose_a_node(number, seen)
        self._mistakes(number, controller)

    def _short_jobs(self, number: int) -> None:
        names = [f"evaluate-{number}-{each}" for each in range(3)]
        for name in names:
            self._submit(name, "vision", seconds=1, says=2)
        self._scene.wait_finished(*names)

    def _promise(self, number: int) -> None:
        """Let a gang wait for work that runs longer than it said, and a small Job run before the gang."""
        holds, gang, small = (f"{word}-{number}" for word in ("index", "embed", "rank"))
        self._submit(holds, "web", gpus=8, says=8)
        self._scene.wait_admitted(holds)
        self._submit(gang, "web", gpus=8, pods=2, seconds=1, says=2)
        promised = wait_for(lambda: self._planned(gang), f"a promise to {gang}")
        self._submit(small, "web", seconds=1, says=1)
        self._scene.wait_finished(small)
        wait_for(lambda: self._planned(gang) != promised, f"a later promise to {gang}")
        self._scene.delete_job(holds)
        self._scene.wait_finished(gang)

    def _planned(self, job: str) -> str:
        workload = self._scene.workload_of(job) or {"metadata": {}}
        return str(workload["metadata"].get("annotations", {}).get(keys.PLANNED_START, ""))

    def _reclaim(self, number: int) -> None:
        """Let speech borrow, and vision take its quota back from Jobs that save before they are stopped."""
        victims = [f"pretrain-{number}-{each}" for each in range(6)]
        for name in victims:
            self._submit(name, "speech", gpus=8, annotations={keys.CHECKPOINT_SAVE_SECONDS: "0"})
        self._scene.wait_admitted(*victims)
        started_at = time.time()
        wait_for(lambda: time.time() > started_at + _WORTH_SAVING_SECONDS, "something to lose")
        self._submit(f"detect-{number}", "vision", gpus=8, pods=2, seconds=2)
        wait_for(lambda: sum(map(self._is_asked, victims)) == 2, "requests to save to two Jobs")
        for name in filter(self._is_asked, victims):
            saved = {keys.CHECKPOINT_TIME: to_rfc3339(time.time())}
            self._scene.rest.patch(f"{self._scene.jobs}/{name}", {"metadata": {"annotations": saved}})
        self._scene.wait_finished(f"detect-{number}")
        for name in victims:
            self._scene.delete_job(name)
        wait_for(lambda: not any(self._scene.workloads_of(name) for name in victims), "the victims gone")

    def _is_asked(self, job: str) -> bool:
        workload = self._scene.workload_of(job)
        return workload is not None and keys.EVICTION in workload["metadata"].get("annotations", {})

    def _lose_a_node(self, number: int, seen: Prometheus) -> None:
        """Let a node fail under a gang that needs one rack, and come back once the recovery is measured.

        A node that comes back earlier would have recovered by itself as far as the controller can see.
        """
        gang = f"segment-{number}"
        self._submit(gang, "vision", gpus=8, pods=2, rack=True)
        self._scene.wait_admitted(gang)
        node = wait_for(lambda: self._node_of(gang), f"a node under {gang}")
        self._set_ready(node, ready=False)
        self._scene.wait_workload(gang, lambda found: node not in json.dumps(found["status"]["admission"]))
        wait_for(lambda: seen.value(_REPLACED) > number, "the recovery being measured")
        self._scene.delete_job(gang)
        self._set_ready(node, ready=True)

    def _mistakes(self, number: int, controller: Replica) -> None:
        name = f"typo-{number}"
        self._submit(name, "vision", seconds=1, annotations={"berth.dev/expected-runtime-seconds": "soon"})
        self._scene.wait_finished(name)
        price = {"metadata": {"labels": {"node-cost-per-hour": f"cheap-{number}"}}}
        self._scene.rest.patch(f"/api/v1/nodes/{self._nodes()[-1]}", price)
        assert not _answers(f"{controller.urls()['http']}/v1/workloads/{self._scene.namespace}/none")
        report = urllib.request.Request(f"{controller.urls()['http']}/v1/checkpoints", data=b"{}")
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(report, timeout=20.0)

    def leave(self) -> None:
        """Let one Job of each queue run, a second one wait, and a third never fit."""
        for queue in ("speech", "vision", "web"):
            self._submit(f"{queue}-runs", queue, gpus=8, pods=2)
            self._scene.wait_admitted(f"{queue}-runs")
        self._submit("waits", "web", gpus=8)
        self._scene.wait_pending("waits")
        self._submit("huge", "vision", gpus=8, pods=9)
        self._scene.wait_pending("huge", "ExceedsMaxQuota")

    def _submit(
        self,
        name: str,
        queue: str,
        *,
        gpus: int = 1,
        says: int | None = None,
        annotations: Mapping[str, str] | None = None,
        rack: bool = False,
        **fields: Any,
    ) -> None:
        own = dict(annotations or {})
        if says is not None:
            own["berth.dev/expected-runtime-seconds"] = str(says)
        job = make_job(name, queue=queue, annotations=own, **fields)
        # The pods of a failed node are replaced.
        job["spec"]["backoffLimit"] = 20
        template = job["spec"]["template"]
        template["metadata"]["labels"] = {"berth.dev/workload-type": "training"}
        resources = {"requests": {GPU: gpus}, "limits": {GPU: gpus}}
        template["spec"]["containers"][0]["resources"] = resources
        if rack:
            template["metadata"]["annotations"][REQUIRED] = RACK
        self._scene.rest.create(self._scene.jobs, job)

    def _nodes(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self._scene.rest.get("/api/v1/nodes")["items"])

    def _node_of(self, job: str) -> str | None:
        pods = self._scene.pods_of(job)
        return next((pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")), None)

    def _set_ready(self, node: str, *, ready: bool) -> None:
        value = None if ready else "false"
        path = f"/api/v1/nodes/{node}"
        self._scene.rest.patch(path, {"metadata": {"annotations": {"berth.dev/simulated-ready": value}}})
        self._scene.rest.wait(path, lambda found: is_true(found, "Ready") == ready)
