"""The ports beside page and metrics on a real control plane: webhooks, visibility API, scheduler extender."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from admission.controller.http.ca_injector import WEBHOOKS, TrustPublisher
from admission.controller.http.client_authority import Clients
from admission.controller.http.front_proxy import find_front_proxy
from admission.controller.http.serving_certificates import SECRET, SERVICE, OwnCertificates
from admission.controller.http.training_job_api import TrainingJobApi
from admission.controller.http.visibility import Visibility, render_error
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.large_reads import LargeReads
from api import keys
from api.http.certificates import make_authority
from api.http.server import HttpServer
from api.kube import resources
from api.kube.client import Body, KubeClient
from api.kube.errors import NotFound, ServerError
from tests import parts
from tests.admission.controller.extending import A100, THREE_NODES, node_object, pod_object
from tests.admission.controller.known import (
    Known,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)
from tests.admission.controller.proxying import make_client
from tests.children import Child
from tests.controlplane import ControlPlane, Rest, RestError, find_assets
from tests.controlplane.definitions import install_definitions
from tests.controlplane.plane import answers
from tests.integration.extending import SCHEDULER, kube_scheduler, listening
from tests.integration.replica import BERTH, Replica
from tests.integration.waiting import PATIENCE_SECONDS, wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("ports")]

Object = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
GROUP = "visibility.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a control plane to this module alone: it asks webhooks and passes requests on."""
    parts.need("controllers")
    folder = tmp_path_factory.mktemp("ports")
    with ControlPlane(find_assets(), folder, apiserver_flags=front_proxy_flags(folder)) as plane:
        install_definitions(plane.rest)
        yield plane


def front_proxy_flags(folder: Path) -> list[str]:
    """Write the certificate that kube-apiserver shows when it passes requests on; return its flags."""
    authority = make_authority(now=time.time())
    client = make_client("front-proxy-client", authority)
    files = {"ca": authority.certificate, "crt": client.certificate, "key": client.key}
    paths = {name: folder / f"front-proxy.{name}" for name in files}
    for name, path in paths.items():
        path.write_bytes(files[name])
    return [
        f"--requestheader-client-ca-file={paths['ca']}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={paths['crt']}",
        f"--proxy-client-key-file={paths['key']}",
    ]


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Give a controller with all its ports, which knows everything."""
    flags = ["--namespace", "berth-system"]
    for name in ("extender", "visibility", "webhook"):
        flags += [f"--{name}-port", "0"]
    replica = Replica(plane.kubeconfig, tmp_path_factory.mktemp("controller"), *flags)
    with replica.child:
        replica.wait_ready()
        replica.wait_leading()
        yield replica


def test_the_ready_line_names_every_port(controller: Replica) -> None:
    assert {name: url.partition(":")[0] for name, url in controller.urls().items() if name != "event"} == {
        "http": "http",
        "metrics": "http",
        "extender": "http",
        "visibility": "https",
        "webhook": "https",
    }


# --- webhooks ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def webhooks(plane: ControlPlane, controller: Replica) -> Iterator[Rest]:
    """Register the controller's webhooks by its address, without a CA bundle; give the server."""
    url = controller.urls()["webhook"]
    for kind, path, rules in (
        ("MutatingWebhookConfiguration", "/mutate", [rule("batch", "v1", "jobs", "CREATE")]),
        (
            "ValidatingWebhookConfiguration",
            "/validate",
            [
                rule("batch", "v1", "jobs", "CREATE", "UPDATE"),
                rule("kueue.x-k8s.io", "v1beta2", "clusterqueues", "CREATE", "UPDATE"),
            ],
        ),
    ):
        plural = f"{kind.lower()}s"
        body = configuration(kind, url + path, rules)
        plane.rest.create(f"{REGISTRATION}/{plural}", body)
        plane.rest.wait(f"{REGISTRATION}/{plural}/{WEBHOOKS}", is_trusting)
    wait_asked(plane.rest)
    yield plane.rest
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        plane.rest.delete(f"{REGISTRATION}/{plural}/{WEBHOOKS}")


def rule(group: str, version: str, plural: str, *operations: str) -> Object:
    """Return one rule of a webhook."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
        "operations": list(operations),
    }


def configuration(kind: str, url: str, rules: list[Object]) -> Object:
    """Return a configuration of one webhook."""
    webhook = {
        "name": "w.berth.dev",
        "clientConfig": {"url": url},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": WEBHOOKS},
        "webhooks": [webhook],
    }


def is_trusting(found: Object) -> bool:
    return all(webhook["clientConfig"].get("caBundle") for webhook in found["webhooks"])


def wait_asked(rest: Rest) -> None:
    """Return when the server has noticed both configurations."""
    wait_for(lambda: dry_run(rest, job_object("probe")) == "suspended", "the mutating webhook being asked")
    bad = job_object("probe", queue="No_Queue")
    wait_for(lambda: "denied the request" in dry_run(rest, bad), "the validating webhook being asked")


def dry_run(rest: Rest, job: Object) -> str:
    """Return whether the Job would be suspended or would run, or why it would be refused."""
    try:
        made = rest.create("/apis/batch/v1/namespaces/default/jobs?dryRun=All", job)
    except RestError as error:
        return str(error)
    return "suspended" if made["spec"]["suspend"] else "running"


def job_object(name: str, *, queue: str = "lq") -> Object:
    """Return a Job that is not suspended."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    labels = {keys.QUEUE_NAME: queue} if queue else {}
    return made("Job", name, version="batch/v1", labels=labels, spec={"template": template})


def test_a_bad_cluster_queue_is_refused_with_a_sentence(webhooks: Rest) -> None:
    with pytest.raises(RestError) as caught:
        webhooks.create(QUEUES, cluster_queue_object("bad", "-1"))

    assert caught.value.status == 403
    assert str(caught.value).endswith(
        'admission webhook "w.berth.dev" denied the request: '
        'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota is "-1": must not be negative'
    )
    assert not webhooks.exists(f"{QUEUES}/bad")


def test_a_good_cluster_queue_is_taken(webhooks: Rest) -> None:
    webhooks.create(QUEUES, cluster_queue_object("good", "8"))
    webhooks.delete(f"{QUEUES}/good")


def test_a_job_in_a_queue_is_suspended_as_it_is_created(webhooks: Rest) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    queued = webhooks.create(jobs, job_object("queued"))
    free = webhooks.create(jobs, job_object("free", queue=""))

    assert (queued["spec"]["suspend"], free["spec"]["suspend"]) == (True, False)
    for name in ("queued", "free"):
        webhooks.delete(f"{jobs}/{name}", {"propagationPolicy": "Background"})


def test_a_running_job_stays_in_its_queue(webhooks: Rest) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    webhooks.create(jobs, job_object("free", queue=""))

    with pytest.raises(RestError) as caught:
        webhooks.patch(f"{jobs}/free", {"metadata": {"labels": {keys.QUEUE_NAME: "lq"}}})

    assert "cannot change while the Job is not suspended" in str(caught.value)
    webhooks.delete(f"{jobs}/free", {"propagationPolicy": "Background"})


# --- visibility ----------------------------------------------------------------------------------


def test_kubectl_reads_the_visibility_port(
    plane: ControlPlane, controller: Replica, kubectl: str, tmp_path: Path
) -> None:
    rest = plane.rest
    rest.create("/apis/kueue.x-k8s.io/v1beta2/resourceflavors", made("ResourceFlavor", "f", spec={}))
    rest.create(QUEUES, cluster_queue_object("full"))
    queues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"
    rest.create(queues, local_queue_object("lq", "default", "full"))
    workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
    rest.create(workloads, workload_object("waits", "default", "lq", created="2026-01-01T00:00:00Z"))
    secret = rest.get(f"/api/v1/namespaces/berth-system/secrets/{SECRET}")

    kubeconfig = write_kubeconfig(tmp_path, controller.urls()["visibility"], secret["data"]["ca.crt"])

    def read(path: str) -> list[Object]:
        command = [kubectl, "--kubeconfig", str(kubeconfig), "get", "--raw", f"/apis/{GROUP}/v1beta2/{path}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        # The controller's caches lag behind what was just created.
        assert done.returncode == 0 or "not found" in done.stderr, done.stderr
        return list(json.loads(done.stdout)["items"]) if done.returncode == 0 else []

    items = wait_for(lambda: read("namespaces/default/localqueues/lq/pendingworkloads") or None, "a Workload")
    assert [item["metadata"]["name"] for item in items] == ["waits"]
    assert read("clusterqueues/full/pendingworkloads") == items


def write_kubeconfig(folder: Path, server: str, authority: str) -> Path:
    """Write a kubeconfig that leads to a server which asks for no credentials."""
    path = folder / "visibility.kubeconfig"
    cluster = {"server": server, "certificate-authority-data": authority}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                # No server reads it, but without any kubectl asks for a password.
                "users": [{"name": "c", "user": {"token": "none"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )
    return path


@pytest.mark.covers("000_35")
async def test_kube_apiserver_passes_requests_on_and_identifies_itself(
    plane: ControlPlane, kubectl: str
) -> None:
    namespace = plane.create_namespace()
    known = Known(
        namespace_object("a"),
        cluster_queue_object("cq"),
        local_queue_object("lq", "a", "cq"),
        workload_object("waits", "a", "lq"),
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await KubeClient.connect(plane.kubeconfig))
        certificates = OwnCertificates(client, SystemClock(), namespace=namespace)
        await certificates.open()
        proxy = await find_front_proxy(client)
        assert proxy is not None
        assert proxy.allowed_names == ("front-proxy-client",)
        tls = certificates.serving_tls()
        clients = Clients(proxy, tls, is_required=True)
        routes = Visibility(known.cluster_state, LargeReads(SystemClock()), lambda: True, clients).routes()
        routes += TrainingJobApi(client, clients).routes()
        server = HttpServer(routes, tls=tls, render_error=render_error)
        await stack.enter_async_context(server)
        await expect_api_services(client, namespace, server.port)
        pods = "/api/v1/namespaces/default/pods"
        plane.rest.create("/api/v1/nodes", node_object("fast", fabric="fabric-7"))
        plane.rest.create(pods, pod_object("placed", job="j", node="fast"))
        publisher = TrustPublisher(client, namespace=namespace, trusted=lambda: certificates.trusted)
        await expect_pending(client, publisher)
        shown = await asyncio.to_thread(
            kubectl_lines, kubectl, plane.kubeconfig, "get", "trainingjobplacements", "--all-namespaces"
        )
        # The other tests of this module schedule pods of the same cluster.
        plane.rest.delete(f"{pods}/placed", {"gracePeriodSeconds": 0})
        plane.rest.delete("/api/v1/nodes/fast")

    assert shown == [
        ["NAMESPACE", "NAME", "PODS", "NODES", "FABRICS"],
        ["default", "j", "1", "fast:1", "fabric-7"],
    ]


def kubectl_lines(kubectl: str, kubeconfig: str, *arguments: str) -> list[list[str]]:
    """Return the words of each line that kubectl prints, once kube-apiserver serves the group."""

    def ask() -> list[list[str]] | None:
        command = [kubectl, "--kubeconfig", kubeconfig, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else None

    return wait_for(ask, f"kubectl {' '.join(arguments)}")


async def expect_api_services(client: KubeClient, namespace: str, port: int) -> None:
    """Lead both APIs to a port of this machine, by a Service whose address is a name."""
    service = {"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await client.request("POST", f"/api/v1/namespaces/{namespace}/services", body=Body(encode(service)))
    for version, group in (("v1beta2", GROUP), ("v1alpha1", "visibility.berth.dev")):
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": namespace, "name": SERVICE, "port": port},
        }
        body = {"metadata": {"name": f"{version}.{group}"}, "spec": spec}
        await client.create(resources.API_SERVICES, encode(body))


async def expect_pending(client: KubeClient, publisher: TrustPublisher) -> None:
    """See pending Workloads through kube-apiserver, once it has the CA bundle."""
    path = f"/apis/{GROUP}/v1beta2/namespaces/a/localqueues/lq/pendingworkloads"
    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_SECONDS):
        publishing = group.create_task(publisher.run())
        while (found := await try_to_get(client, path)) is None:
            await asyncio.sleep(0.1)
        publishing.cancel()
    assert [item["metadata"]["name"] for item in found["items"]] == ["waits"]


async def try_to_get(client: KubeClient, path: str) -> Any:
    """Return what is at the path, None while kube-apiserver cannot pass on."""
    try:
        return json.loads(await client.request("GET", path))
    except (NotFound, ServerError):
        return None


def encode(obj: Object) -> bytes:
    """Return the object's bytes."""
    return json.dumps(obj).encode()


# --- the extender --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def extended(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give the cluster with nodes, the extender, and a kube-scheduler that asks it."""
    folder = tmp_path_factory.mktemp("extender")
    for node in (*THREE_NODES, *FABRIC_NODES):
        plane.rest.create("/api/v1/nodes", node)
        # No kubelet reports the node as ready, so its first taint is not taken away.
        plane.rest.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})
    arguments = [BERTH, "extender", "--kubeconfig", plane.kubeconfig, "--port", "0"]
    with Child(name="extender", arguments=arguments, log=folder / "extender.log") as extender:
        extender.wait_ready(lambda: bool(listening(extender)), timeout_seconds=90.0)
        ready = Rest(listening(extender))
        extender.wait_ready(lambda: answers(ready, "/readyz"), timeout_seconds=90.0)
        with kube_scheduler(plane, folder, listening(extender)):
            yield plane


FABRIC_NODES = tuple(
    node_object(f"{fabric}-{number}", model="H100", fabric=fabric)
    for fabric in ("fabric-1", "fabric-2")
    for number in range(3)
)


def schedule(plane: ControlPlane, pod: Object, scheduler: str = SCHEDULER) -> str:
    """Create a pod; return the node it is bound to."""
    pod["spec"] |= {"schedulerName": scheduler, "automountServiceAccountToken": False}
    pods = "/api/v1/namespaces/default/pods"
    plane.rest.create(pods, pod)
    path = f"{pods}/{pod['metadata']['name']}"
    return str(plane.rest.wait(path, lambda found: bool(found["spec"].get("nodeName")))["spec"]["nodeName"])


@pytest.mark.covers("000_45", "000_46")
def test_the_pod_lands_on_the_node_of_its_model_and_numa_node(extended: ControlPlane) -> None:
    assert schedule(extended, pod_object("train", model=A100, gpus=1)) == "node-a"


@pytest.mark.covers("002_01")
def test_a_pod_that_names_the_topology_scheduler_is_bound(extended: ControlPlane) -> None:
    pod = pod_object("topology", model=A100, gpus=1)

    assert schedule(extended, pod, "topology-aware-scheduler") == "node-a"


@pytest.mark.covers("000_27")
def test_the_pod_lands_on_the_numa_node_that_it_names(extended: ControlPlane) -> None:
    assert schedule(extended, pod_object("train-1", model=A100, gpus=1, numa="1")) == "node-b"


@pytest.mark.covers("000_34")
def test_the_pods_of_a_training_job_land_in_one_fabric(extended: ControlPlane) -> None:
    nodes = [schedule(extended, pod_object(f"j-{n}", model="H100", job="j", gpus=4)) for n in range(6)]

    assert len({node.rpartition("-")[0] for node in nodes}) == 1


@pytest.mark.covers("000_39")
def test_a_pod_that_no_node_suits_waits_and_says_why(extended: ControlPlane) -> None:
    pod = pod_object("nowhere", model="L4", gpus=1)
    pod["spec"]["schedulerName"] = SCHEDULER
    extended.rest.create("/api/v1/namespaces/default/pods", pod)

    found = extended.rest.wait("/api/v1/namespaces/default/pods/nowhere", has_conditions)

    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert "GPU model mismatch" in condition["message"]


def has_conditions(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("conditions"))
