"""What a tenant's commands show with its own rights: a RoleBinding in one namespace of a real API server.

The controller listens on all addresses, so that it asks for a token as in a cluster. A tenant that is told
its address asks it; without, kubectl finds no Deployment to forward to, or is not there.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from mcp import Client, StdioServerParameters

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from api.kube.kubeconfig import find_endpoint
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import Object, make_job
from tests.integration.replica import Replica
from tests.integration.scene import Scene

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("tenants")]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = Path(__file__).parents[2] / "deploy" / "users.yaml"
# What batch users may read in their namespace, by deploy/users.yaml.
VIEWERS = ("berth-job-viewer-role", "berth-workload-viewer-role", "berth-localqueue-viewer-role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant with a running Job, one that waits, and one that is too large; another waits beside it."""

    own: Scene
    other: Scene
    kubeconfig: str
    controller: tuple[str, ...]


@pytest.fixture(scope="module")
def options() -> Options:
    """Have the controller ask for tokens."""
    return Options(flags=("--bind", "0.0.0.0"))


@pytest.fixture(scope="module")
def tenant(
    real_cluster: Cluster, real_controller: Replica, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tenant]:
    """Give a tenant whose kubeconfig names its namespace. It shares a ClusterQueue with another one."""
    own, other, rest = real_cluster.new_scene(), real_cluster.new_scene(), real_cluster.rest
    shared = own.create_queue(cpus=4)
    other.create_local_queue("main", shared)
    for role in _viewers():
        name = role["metadata"]["name"]
        rest.create(f"{RBAC}/clusterroles", role)
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": own.namespace}],
        }
        rest.create(f"{RBAC}/namespaces/{own.namespace}/rolebindings", body)
    accounts = f"/api/v1/namespaces/{own.namespace}/serviceaccounts"
    rest.create(accounts, {"metadata": {"name": "user"}})
    token = rest.create(f"{accounts}/user/token", {"spec": {}})["status"]["token"]
    document = yaml.safe_load(Path(real_cluster.kubeconfig).read_text())
    document["users"][0]["user"] = {"token": token}
    document["contexts"][0]["context"]["namespace"] = own.namespace
    kubeconfig = tmp_path_factory.mktemp("tenant") / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    own.create_job("running", cpus=4)
    own.wait_workload("running", lambda one: bool(one.get("status", {}).get("admission")), "admitted")
    first = {"kueue.x-k8s.io/priority-class": other.create_priority("first", 10)}
    other.create_job("foreign", cpus=4, labels=first)
    own.create_job("waiting", cpus=4)
    own.create_job("too-large", cpus=9)
    own.wait_workload("too-large", _shows_its_reason, "its reason")
    for scene, job in ((own, "waiting"), (other, "foreign")):
        scene.wait_workload(job, _shows_its_reason, "its reason")
    way = "--url", real_controller.urls()["http"], "--ca", str(_authority(real_controller, real_cluster))
    yield Tenant(own=own, other=other, kubeconfig=str(kubeconfig), controller=way)
    for scene in (own, other):
        rest.delete(scene.jobs, {"propagationPolicy": "Background"})
    for name in VIEWERS:
        rest.delete(f"{RBAC}/clusterroles/{name}")


def _viewers() -> list[Object]:
    return [role for role in yaml.safe_load_all(ROLES.read_text()) if role["metadata"]["name"] in VIEWERS]


def _authority(controller: Replica, cluster: Cluster) -> Path:
    """Return a file with the authority of the controller's certificates."""
    arguments = controller.child.arguments
    namespace = arguments[arguments.index("--namespace") + 1]
    secret = cluster.rest.get(f"/api/v1/namespaces/{namespace}/secrets/berth-certificates")
    file = controller.config_file.with_name("ca.crt")
    file.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    return file


def _shows_its_reason(workload: Object) -> bool:
    return "QuotaReserved" in json.dumps(workload.get("status", {}))


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("get workloads", ["running", "waiting", "never"], id="Workloads"),
        pytest.param("get workloads -o wide --status pending", ["ExceedsMaxQuota"], id="all columns"),
        pytest.param("get workloads --controller", ["running", "waiting", "never"], id="of the controller"),
        pytest.param("get queues", ["main", "cpu"], id="LocalQueues"),
        pytest.param("get estimates", ["no Workload has succeeded"], id="run times"),
        pytest.param("usage --by namespace", ["NAMESPACE", "test-"], id="usage"),
    ],
)
def test_a_tenant_sees_its_own_and_nothing_of_others(
    command: str, want: list[str], tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = command.startswith(("get workloads", "usage"))
    way = tenant.controller if asks else ()
    code = main([*command.split(), "--kubeconfig", tenant.kubeconfig, *way])

    out, err = capsys.readouterr()
    assert (code, err) == (ExitCode.DONE, "")
    assert [word for word in want if word not in out] == []
    assert "foreign" not in out
    assert tenant.other.namespace not in out


def test_positions_of_a_tenant_are_those_of_the_whole_queue(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["get", "workloads", "--status", "pending", "-o", "json", "--kubeconfig", tenant.kubeconfig]

    main([*command, *tenant.controller])
    assert [one["position"] for one in json.loads(capsys.readouterr().out) if one["canStart"]] == [2]
    assert main(command) == ExitCode.DONE
    out, err = capsys.readouterr()
    assert [one["position"] for one in json.loads(out)] == [None, None]
    assert err.startswith("berth get: the controller, which knows all positions, cannot be asked: ")
    assert "--url" in err


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("get workloads -A", "name a namespace that you may read with -n", id="all namespaces"),
        pytest.param("get policies", "berth-admissionpolicy-viewer-role", id="policies"),
        pytest.param("get reservations", "berth-admissionpolicy-viewer-role", id="reservations"),
        pytest.param("policy show any", "berth-admissionpolicy-viewer-role", id="one policy"),
        pytest.param("doctor", "let an administrator run it", id="the whole cluster"),
        pytest.param("get workloads --controller", "give", id="Workloads of the controller"),
        pytest.param("usage", "give", id="usage"),
        pytest.param("page --no-browser", "give", id="the page"),
    ],
)
def test_what_a_tenant_may_not_read_is_one_line_with_the_remedy(
    command: str, want: str, tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*command.split(), "--kubeconfig", tenant.kubeconfig])

    out, err = capsys.readouterr()
    assert (code in (ExitCode.UNREACHABLE, ExitCode.WRONG_USAGE), out) == (True, ""), err
    assert err.count("\n") == 1
    assert "forbidden" in err or "kubectl is not installed" in err
    assert want in err


@pytest.mark.parametrize(
    ("job", "want_code", "want"),
    [
        pytest.param("running", ExitCode.DONE, "runs since", id="one that runs"),
        pytest.param("waiting", ExitCode.DOES_NOT_HOLD, "more needed", id="one that waits"),
        pytest.param(
            "too-large", ExitCode.DOES_NOT_HOLD, "cannot start as it is", id="one that is too large"
        ),
    ],
)
def test_a_tenant_sees_the_state_of_its_job(
    job: str, want_code: ExitCode, want: str, tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["explain", job, "--kubeconfig", tenant.kubeconfig])

    out, err = capsys.readouterr()
    assert code == want_code
    assert err.startswith("berth explain: the controller knows more, and cannot be asked: ")
    assert "--url" in err
    assert want in out
    assert "foreign" not in out
    assert tenant.other.namespace not in out


@pytest.mark.parametrize(
    ("job", "want_code", "want"),
    [
        pytest.param("running", ExitCode.DONE, ["runs since"], id="one that runs"),
        pytest.param(
            "waiting",
            ExitCode.DOES_NOT_HOLD,
            ["It is at position", "it lacks 4 of 4 cpu", "who holds cpu of flavor", "/job-running-", "(4)"],
            id="one that waits",
        ),
        pytest.param("too-large", ExitCode.DOES_NOT_HOLD, ["may use at most 4"], id="one that is too large"),
    ],
)
def test_the_controller_tells_a_tenant_what_holds_what_its_job_lacks(
    job: str, want_code: ExitCode, want: list[str], tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["explain", job, "--kubeconfig", tenant.kubeconfig, *tenant.controller])

    out, err = capsys.readouterr()
    assert (code, err) == (want_code, "")
    assert [words for words in want if words not in out] == []
    assert "foreign" not in out
    assert tenant.other.namespace not in out


def test_a_tenant_asks_about_a_job_before_it_is_submitted(
    tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(make_job("new", cpus=9)))
    command = ["explain", "-f", str(file), "--kubeconfig", tenant.kubeconfig]

    assert main([*command, *tenant.controller]) == ExitCode.DOES_NOT_HOLD
    assert "would not start as it is" in capsys.readouterr().out
    assert main(command) == ExitCode.UNREACHABLE
    err = capsys.readouterr().err
    assert "clusterqueues" in err
    assert "--url" in err


@pytest.mark.parametrize(
    ("tool", "given", "want"),
    [
        pytest.param("list_workloads", {"status": "pending"}, ["waiting", "too-large"], id="Workloads"),
        pytest.param("list_queues", {}, ["cpu"], id="queues"),
        pytest.param("list_promises", {}, [], id="promises"),
        pytest.param("explain", {"name": "waiting"}, ["it lacks 4 of 4 cpu"], id="one that waits"),
        pytest.param(
            "what_if", {"manifests": json.dumps(make_job("new", cpus=4))}, ["new"], id="a Job not submitted"
        ),
    ],
)
async def test_an_assistant_of_a_tenant_sees_its_own_and_nothing_of_others(
    tool: str, given: dict[str, str], want: list[str], tenant: Tenant
) -> None:
    command = ["-m", "admission.cli", "mcp", "--kubeconfig", tenant.kubeconfig, *tenant.controller]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        answer = await client.call_tool(tool, given)

    said = json.dumps(answer.structured_content)
    assert not answer.is_error, answer
    assert [word for word in want if word not in said] == []
    assert "foreign" not in said
    assert tenant.other.namespace not in said


async def test_the_page_shows_a_tenant_its_own_and_nothing_of_others(tenant: Tenant) -> None:
    endpoint = find_endpoint(tenant.kubeconfig, environment={})
    _, url, _, authority = tenant.controller
    headers = {"Authorization": await endpoint.credentials.authorization() or ""}
    trusted = ssl.create_default_context(cafile=authority)
    paths = (
        "",
        "queues",
        "cohorts",
        "racks",
        "calendar",
        "health",
        f"workloads/{tenant.own.namespace}/waiting",
    )
    found = {}
    async with aiohttp.ClientSession(headers=headers) as client:
        for path in paths:
            async with client.get(f"{url}/{path}", ssl=trusted) as answer:
                found[path] = answer.status, await answer.text()

    assert {status for status, _ in found.values()} == {200}
    assert "waiting" in found[""][1]
    assert "it lacks 4 of 4 cpu" in found[paths[-1]][1]
    hidden = ("foreign", tenant.other.namespace)
    assert [path for path, (_, text) in found.items() if any(word in text for word in hidden)] == []
