"""deploy/node-agent as it is shipped, on a real API server: the agent writes its own node, and no more.

The agent runs with a token of its ServiceAccount that is bound to a pod of the DaemonSet, as the kubelet asks
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import parts
from tests.controlplane import ControlPlane, Rest, RestError, find_assets
from tests.integration.shipped import DEPLOY, kubectl, may
from tests.integration.test_node_agent import IDS, MODEL, SOCKET, SWITCHED, TWO_SOCKETS, Agent
from tests.integration.waiting import wait_for
from tests.kubelet import GPU, KubeletThread, pod_resources

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("node-agent-rights")]

NAMESPACE = ACCOUNT = "berth-node-agent"
AGENT = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
OWN, OTHER = "/api/v1/nodes/gpu-1", "/api/v1/nodes/gpu-2"
PODS = "/api/v1/namespaces/team/pods"
ISLAND = "berth.dev/nvlink-island.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """deploy/node-agent on a control plane. `rest` is a client with the token of the agent on gpu-1."""

    plane: ControlPlane
    rest: Rest
    token: str = field(repr=False)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Give a control plane of its own with two nodes, a pod on each, and the agent of the first one."""
    parts.need("controllers")
    parts.need("kubectl")
    folder = tmp_path_factory.mktemp("controlplane")
    with ControlPlane(find_assets(), folder) as plane:
        plane.start_controllers()
        kubectl(plane, "apply", "-k", str(DEPLOY / "node-agent"))
        plane.rest.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        plane.rest.wait("/api/v1/namespaces/team/serviceaccounts", lambda found: bool(found["items"]))
        for node in ("gpu-1", "gpu-2"):
            metadata = {"name": node, "labels": {"zone": "a"}, "annotations": {"note": "a"}}
            plane.rest.create("/api/v1/nodes", {"metadata": metadata})
            container = {"name": "c", "image": "none"}
            body = {"metadata": {"name": f"on-{node}"}, "spec": {"nodeName": node, "containers": [container]}}
            plane.rest.create(PODS, body)
        token = agent_token(plane, "gpu-1")
        rest = Rest(plane.server, token=token, ca_file=plane.ca_file)
        # Each comes into force by itself.
        wait_for(lambda: is_refused(rest, OTHER, {"labels": {MODEL: "x"}}), "the policy of nodes in force")
        elsewhere = f"{PODS}/on-gpu-2"
        wait_for(lambda: is_refused(rest, elsewhere, {"annotations": {IDS: "0"}}), "that of pods in force")
        yield Deployed(plane=plane, rest=rest, token=token)


def agent_token(plane: ControlPlane, node: str) -> str:
    """Return a token as the agent's pod on a node has it."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = plane.rest.create(pods, {**agent_pod(), "metadata": {"name": node}} | on_node(node))
    bound = {"kind": "Pod", "apiVersion": "v1", "name": node, "uid": pod["metadata"]["uid"]}
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    return str(plane.rest.create(path, asked)["status"]["token"])


def agent_pod() -> dict[str, Any]:
    """Return a pod as the shipped DaemonSet creates it."""
    documents = yaml.safe_load_all((DEPLOY / "node-agent" / "daemonset.yaml").read_text())
    (template,) = (one["spec"]["template"] for one in documents if one["kind"] == "DaemonSet")
    return {"metadata": {"name": "agent"}, "spec": template["spec"]}


def on_node(node: str) -> dict[str, Any]:
    """Return the spec of the agent's pod once it is bound."""
    return {"spec": {**agent_pod()["spec"], "nodeName": node}}


def patch(rest: Rest, path: str, metadata: dict[str, Any], **rest_of_body: Any) -> None:
    """Try to patch an object; nothing is stored."""
    rest.patch(f"{path}?dryRun=All", {"metadata": metadata, **rest_of_body})


def is_refused(rest: Rest, path: str, metadata: dict[str, Any]) -> bool:
    """Return whether the policies refuse to write this."""
    try:
        patch(rest, path, metadata)
    except RestError as error:
        return "is named in its token" in str(error)
    return False


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(OWN, {"metadata": {"labels": {MODEL: "x", ISLAND: "0-3"}}}, id="labels about GPUs"),
        pytest.param(
            OWN, {"metadata": {"annotations": {"berth.dev/node-agent-version": "1"}}}, id="its version"
        ),
        pytest.param(f"{PODS}/on-gpu-1", {"metadata": {"annotations": {IDS: "0"}}}, id="ids of a pod here"),
    ],
)
def test_the_agent_may_write_its_own_keys_here(deployed: Deployed, path: str, body: dict[str, Any]) -> None:
    deployed.rest.patch(f"{path}?dryRun=All", body)


@pytest.mark.parametrize(
    ("path", "body", "want"),
    [
        pytest.param(
            OTHER, {"metadata": {"labels": {MODEL: "x"}}}, "the node that is named", id="another node"
        ),
        pytest.param(OWN, {"metadata": {"labels": {"team": "x"}}}, "labels about GPUs", id="another label"),
        pytest.param(
            OWN, {"metadata": {"labels": {"zone": None}}}, "labels about GPUs", id="a label that goes"
        ),
        pytest.param(
            OWN, {"metadata": {"labels": {"zone": "b"}}}, "labels about GPUs", id="a label that changes"
        ),
        pytest.param(
            OWN, {"metadata": {"annotations": {"note": "b"}}}, "node-agent-version", id="another annotation"
        ),
        pytest.param(
            OWN, {"metadata": {"annotations": {"note": None}}}, "node-agent-version", id="one that goes"
        ),
        pytest.param(OWN, {"spec": {"unschedulable": True}}, "nothing else", id="a node's spec"),
        pytest.param(OWN, {"metadata": {"finalizers": ["a/b"]}}, "nothing else", id="a node's finalizers"),
        pytest.param(
            f"{PODS}/on-gpu-2",
            {"metadata": {"annotations": {IDS: "0"}}},
            "pods on the node that is named",
            id="a pod elsewhere",
        ),
        pytest.param(
            f"{PODS}/on-gpu-1", {"metadata": {"annotations": {"a": "b"}}}, "berth.dev/gpu-ids", id="a note"
        ),
        pytest.param(
            f"{PODS}/on-gpu-1", {"metadata": {"labels": {"a": "b"}}}, "nothing else", id="a pod's label"
        ),
        pytest.param(
            f"{PODS}/on-gpu-1",
            {"spec": {"activeDeadlineSeconds": 1}},
            "nothing else",
            id="a pod's deadline",
        ),
    ],
)
def test_the_agent_may_write_nothing_else(
    deployed: Deployed, path: str, body: dict[str, Any], want: str
) -> None:
    with pytest.raises(RestError, match=want) as found:
        deployed.rest.patch(f"{path}?dryRun=All", body)

    assert found.value.reason == "Forbidden"


def test_a_token_without_a_node_writes_nothing(deployed: Deployed) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = deployed.plane.rest.create(path, asked)["status"]["token"]
    rest = Rest(deployed.plane.server, token=token, ca_file=deployed.plane.ca_file)

    assert is_refused(rest, OWN, {"labels": {MODEL: "x"}})
    assert is_refused(rest, f"{PODS}/on-gpu-1", {"annotations": {IDS: "0"}})


def test_other_users_are_not_concerned(deployed: Deployed) -> None:
    patch(deployed.plane.rest, OTHER, {"labels": {"team": "x"}})
    patch(deployed.plane.rest, f"{PODS}/on-gpu-2", {"annotations": {"a": "b"}})


# What `kubectl auth can-i` answers for the agent.
RIGHTS = {
    "get /nodes": "yes",
    "list /nodes": "no",
    "patch /nodes": "yes",
    "update /nodes": "no",
    "patch /nodes/status": "no",
    "delete /nodes": "no",
    "watch /pods": "yes",
    "patch /pods": "yes",
    "delete /pods": "no",
    "create /pods": "no",
    "create /pods/exec": "no",
    "get /secrets": "no",
    "create events.k8s.io/events": "no",
}


@pytest.mark.parametrize("right", RIGHTS)
def test_the_agent_has_the_rights_of_the_table(deployed: Deployed, right: str) -> None:
    assert ("yes" if may(deployed.plane, AGENT, right, namespace="team") else "no") == RIGHTS[right]


def test_events_are_written_in_the_namespace_of_those_about_nodes(deployed: Deployed) -> None:
    assert may(deployed.plane, AGENT, "create events.k8s.io/events", namespace="default")


def test_the_shipped_pod_breaks_no_rule_but_that_of_host_paths_and_root(deployed: Deployed) -> None:
    namespace = {
        "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    }
    rest = deployed.plane.rest
    rest.create("/api/v1/namespaces", namespace)
    rest.wait("/api/v1/namespaces/strict/serviceaccounts", lambda found: bool(found["items"]))
    pod = agent_pod()
    spec = {key: value for key, value in pod["spec"].items() if key != "serviceAccountName"}

    with pytest.raises(RestError, match="violates PodSecurity") as found:
        rest.create("/api/v1/namespaces/strict/pods?dryRun=All", {**pod, "spec": spec})

    refusals = str(found.value).partition('"restricted:latest": ')[2]
    assert [one.split(" ")[0] for one in refusals.split("), ")] == [
        "restricted",
        "runAsNonRoot",
        "runAsUser=0",
    ]
    assert "hostPath" in refusals


def test_the_agent_works_with_these_rights_alone(deployed: Deployed, tmp_path: Path) -> None:
    plane = deployed.plane
    kubeconfig = plane.write_kubeconfig("agent", deployed.token)
    with KubeletThread(str(tmp_path / SOCKET)) as kubelet:
        agent = Agent(kubeconfig, "gpu-1", tmp_path, kubelet)
        gpus = agent.machine.become("nvswitch", TWO_SOCKETS)
        kubelet.assign(pod_resources("team", "on-gpu-1", [{GPU: [gpus[6].uuid]}]))
        with agent.child:
            agent.child.wait_ready(
                lambda: MODEL in plane.rest.get(OWN)["metadata"]["labels"], timeout_seconds=90.0
            )
            pod = plane.rest.wait(
                f"{PODS}/on-gpu-1", lambda found: IDS in found["metadata"].get("annotations", {})
            )
            agent.machine.fail("not-loaded", 9)
            events = "/apis/events.k8s.io/v1/namespaces/default/events"
            plane.rest.wait(
                events, lambda found: any("communicate with" in one["note"] for one in found["items"])
            )
            plane.rest.wait(OWN, lambda found: MODEL not in found["metadata"]["labels"])
            log = agent.log()

    assert pod["metadata"]["annotations"][IDS] == "6"
    assert f"{SWITCHED[MODEL]}" in log
    assert "orbidden" not in log
