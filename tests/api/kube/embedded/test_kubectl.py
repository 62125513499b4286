"""kubectl works against the embedded server as it does against a cluster."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns
from tests.embedded import EmbeddedCluster

PATIENCE_SECONDS = 60.0

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {team: red}}
spec:
  suspend: true
  template:
    metadata: {annotations: {berth.dev/simulated-runtime-seconds: "0.2"}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: busybox
        resources: {requests: {cpu: 500m}}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.kubectl.berth.dev}
spec:
  group: kubectl.berth.dev
  scope: Namespaced
  names: {plural: queues, kind: Queue, shortNames: [q]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Weight, type: integer, jsonPath: .spec.weight}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              weight: {type: integer, default: 1, description: How much of the cluster it gets.}
"""
QUEUE = """
apiVersion: kubectl.berth.dev/v1
kind: Queue
metadata: {name: ml}
spec: {weight: 3}
"""


class Kubectl:
    """Runs kubectl against one server."""

    def __init__(self, program: str, kubeconfig: str, home: Path) -> None:
        self._program = program
        # A separate home, because kubectl caches the discovery of a server in files, by its address.
        self._environment = {"KUBECONFIG": kubeconfig, "HOME": str(home), "PATH": os.environ["PATH"]}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start kubectl and return the running program."""
        return await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Return the output of kubectl, or its error message if a failure is expected."""
        program = await self.start(*arguments)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                out, complaints = await program.communicate(stdin.encode())
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        assert (program.returncode != 0) == fails, complaints.decode()
        return (complaints if fails else out).decode()

    async def json(self, *arguments: str) -> Any:
        """Return the object or list that kubectl prints with -o json."""
        return json.loads(await self(*arguments, "-o", "json"))


@pytest.fixture
async def run(kubectl: str, embedded_server: EmbeddedCluster, tmp_path: Path) -> Kubectl:
    """Give kubectl on a new embedded server."""
    return Kubectl(kubectl, embedded_server.kubeconfig, tmp_path)


@pytest.fixture
async def stand_ins(embedded_server: EmbeddedCluster) -> AsyncIterator[StandIns]:
    """Let Jobs run on two simulated nodes."""
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        nodes = [NodeSpec(name=name, allocatable={"cpu": "4"}) for name in ("n1", "n2")]
        stand_ins = StandIns(client, nodes=nodes)
        running = asyncio.create_task(stand_ins.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await stand_ins.wait_ready()
        yield stand_ins
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_apply_creates_changes_and_leaves_alone(run: Kubectl) -> None:
    created = await run("apply", "-f", "-", stdin=JOB)
    unchanged = await run("apply", "-f", "-", stdin=JOB)
    changed = await run("apply", "-f", "-", stdin=JOB.replace("team: red", "team: blue"))

    assert [created, unchanged, changed] == [
        "job.batch/train created\n",
        "job.batch/train unchanged\n",
        "job.batch/train configured\n",
    ]


async def test_apply_works_on_the_server_too(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)

    moved = await run("apply", "--server-side", "-f", "-", stdin=JOB)
    conflict = await run(
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        stdin=JOB.replace("team: red", "team: blue"),
        fails=True,
    )

    assert moved == "job.batch/train serverside-applied\n"
    assert 'conflict with "kubectl": .metadata.labels.team' in conflict


async def test_apply_reports_a_field_that_does_not_exist(run: Kubectl) -> None:
    complaint = await run(
        "apply", "-f", "-", stdin=JOB.replace("suspend: true", "suspended: true"), fails=True
    )

    assert 'unknown field "spec.suspended"' in complaint


async def test_apply_reports_a_broken_quantity(run: Kubectl) -> None:
    complaint = await run("apply", "-f", "-", stdin=JOB.replace("500m", "lots"), fails=True)

    assert "quantities must match the regular expression" in complaint


async def test_get_prints_the_columns_of_a_cluster(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)

    head, row = (await run("get", "jobs")).splitlines()

    assert head.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["train", "Running", "0/1"]


async def test_get_selects_by_label_and_by_name(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)

    assert await run("get", "job", "-l", "team=red", "-o", "name") == "job.batch/train\n"
    assert await run("get", "job", "-l", "team=blue", "-o", "name") == ""
    assert "not found" in await run("get", "job", "nope", fails=True)


async def test_label_annotate_and_patch(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)

    await run("label", "job", "train", "tier=gold", "team-")
    await run("annotate", "job", "train", "note=seen")
    await run("patch", "job", "train", "-p", '{"spec": {"parallelism": 2}}')
    await run("patch", "job", "train", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    await run(
        "patch", "job", "train", "--type=json", "-p", '[{"op": "remove", "path": "/metadata/labels/tier"}]'
    )

    job = await run.json("get", "job", "train")
    assert "labels" not in job["metadata"] or not {"team", "tier"} & job["metadata"]["labels"].keys()
    assert job["metadata"]["annotations"]["note"] == "seen"
    assert (job["spec"]["parallelism"], job["spec"]["suspend"]) == (2, False)


async def test_describe_shows_the_events_of_either_group(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)
    uid = (await run.json("get", "job", "train"))["metadata"]["uid"]
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "train.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Pending",
        "note": "waits for quota",
        "action": "Wait",
        "type": "Warning",
        "reportingController": "berth.dev/berth",
        "reportingInstance": "one",
        "regarding": {"kind": "Job", "name": "train", "namespace": "default", "uid": uid},
    }
    await run("create", "-f", "-", stdin=json.dumps(event))

    described = await run("describe", "job", "train")

    assert "Suspend:          true" in described
    assert "waits for quota" in described


async def test_custom_kinds_are_served_printed_and_explained(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=CRD)
    await run("wait", "--for=condition=Established", "crd/queues.kubectl.berth.dev")
    await run("apply", "-f", "-", stdin=QUEUE)

    head, row = (await run("get", "q")).splitlines()
    explained = await run("explain", "queue.spec.weight")

    assert (head.split(), row.split()) == (["NAME", "WEIGHT"], ["ml", "3"])
    assert "How much of the cluster it gets." in explained


async def test_explain_knows_the_built_in_fields(run: Kubectl) -> None:
    explained = await run("explain", "job.spec.template.spec.containers")

    assert "KIND:       Job" in explained
    assert "imagePullPolicy" in explained


async def test_create_replace_and_delete(run: Kubectl) -> None:
    await run("create", "-f", "-", stdin=JOB)
    taken = await run("create", "-f", "-", stdin=JOB, fails=True)
    job = await run.json("get", "job", "train")
    job["metadata"]["labels"] = {"team": "green"}

    await run("replace", "-f", "-", stdin=json.dumps(job))
    deleted = await run("delete", "job", "train")

    assert "AlreadyExists" in taken
    assert deleted.startswith('job.batch "train" deleted')
    assert "not found" in await run("get", "job", "train", fails=True)


async def test_a_namespace_takes_what_is_in_it_along(run: Kubectl) -> None:
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
    await run("apply", "-f", "-", stdin=space)
    await run("-n", "team", "apply", "-f", "-", stdin=JOB)

    await run("delete", "namespace", "team")

    assert await run("get", "jobs", "-A", "-o", "name") == ""
    assert "not found" in await run("get", "namespace", "team", fails=True)


async def test_get_follows_changes(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=JOB)
    watching = await run.start("get", "job", "train", "--watch", "--no-headers")
    assert watching.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = await watching.stdout.readline()
            await run("label", "job", "train", "seen=1")
            second = await watching.stdout.readline()
    finally:
        watching.kill()
        await watching.communicate()

    assert first.split()[0] == second.split()[0] == b"train"


async def test_a_job_that_is_resumed_runs_on_the_simulated_nodes(run: Kubectl, stand_ins: StandIns) -> None:
    del stand_ins  # it runs in the background
    await run("apply", "-f", "-", stdin=JOB)
    await run("wait", "--for=condition=Suspended", "job/train", "--timeout=60s")

    await run("patch", "job", "train", "-p", '{"spec": {"suspend": false}}')
    await run("wait", "--for=condition=Complete", "job/train", "--timeout=60s")

    (pod,) = (await run.json("get", "pods"))["items"]
    head, row = (await run("get", "pods")).splitlines()
    nodes = (await run("get", "nodes", "--no-headers")).splitlines()
    assert pod["status"]["phase"] == "Succeeded"
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[1:4] == ["0/1", "Completed", "0"]
    assert [node.split()[:2] for node in nodes] == [["n1", "Ready"], ["n2", "Ready"]]


async def test_drain_empties_a_node(run: Kubectl, stand_ins: StandIns) -> None:
    del stand_ins
    running = JOB.replace("suspend: true", "suspend: false").replace('"0.2"', '"1000"')
    await run("apply", "-f", "-", stdin=running)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (bound := await run("get", "pods", "--field-selector=spec.nodeName!=", "-o", "name")):
            await asyncio.sleep(0.05)
    node_name = (await run.json("get", bound.strip()))["spec"]["nodeName"]

    await run("drain", node_name, "--timeout=60s")

    left = await run.json("get", "pods", f"--field-selector=spec.nodeName={node_name}")
    node = await run.json("get", "node", node_name)
    assert left["items"] == []
    assert node["spec"]["unschedulable"] is True


async def test_what_kubectl_makes_without_a_file_is_taken_in_its_binary_form(run: Kubectl) -> None:
    await run("create", "namespace", "team")
    await run("-n", "team", "create", "configmap", "settings", "--from-literal=size=8")
    await run("-n", "team", "create", "secret", "generic", "key", "--from-literal=token=s3cret")
    await run("-n", "team", "create", "quota", "most", "--hard=cpu=4,pods=9")
    await run("-n", "team", "create", "job", "hello", "--image=busybox", "--", "echo", "hi")
    await run("create", "priorityclass", "low", "--value=-5", "--description=after all others")

    assert (await run.json("get", "namespace", "team"))["status"] == {"phase": "Active"}
    assert (await run.json("-n", "team", "get", "configmap", "settings"))["data"] == {"size": "8"}
    assert (await run.json("-n", "team", "get", "secret", "key"))["data"] == {"token": "czNjcmV0"}
    assert (await run.json("-n", "team", "get", "quota", "most"))["spec"] == {
        "hard": {"cpu": "4", "pods": "9"}
    }
    (container,) = (await run.json("-n", "team", "get", "job", "hello"))["spec"]["template"]["spec"][
        "containers"
    ]
    assert (container["image"], container["command"]) == ("busybox", ["echo", "hi"])
    low = await run.json("get", "priorityclass", "low")
    assert (low["value"], low["description"]) == (-5, "after all others")
