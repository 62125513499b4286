"""Who may read a controller on a cluster: users of the real API server, by TLS, with the roles of deploy/."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import Rest, RestError
from tests.integration.conftest import Cluster, Controllers
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("readers")]

ROLES = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
QUEUES = "/v1/clusterqueues"


class Site:
    """A controller that listens on all addresses, and the ServiceAccounts that read it."""

    def __init__(self, scene: Scene, other: Scene, urls: dict[str, str], authority: Path) -> None:
        self.rest = scene.rest
        self.scene = scene
        self.other = other
        self.urls = urls
        self._namespace = scene.namespace
        self._authority = str(authority)

    def user(self, name: str, role: str | None) -> str:
        """Create a ServiceAccount with this role of deploy/rbac.yaml. Return a token of it."""
        accounts = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"
        self.rest.create(accounts, {"metadata": {"name": name}})
        if role is not None:
            subject = {"kind": "ServiceAccount", "name": name, "namespace": self._namespace}
            body = {
                "metadata": {"name": f"{self._namespace}-{name}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            }
            self.rest.create(f"{RBAC}/clusterrolebindings", body)
        return str(self.rest.create(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"])

    def tenant(self, name: str) -> str:
        """Create a ServiceAccount that may list Workloads in the namespace alone. Return a token."""
        role = {
            "metadata": {"name": name},
            "rules": [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]}],
        }
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}],
        }
        for kind, body in (("roles", role), ("rolebindings", binding)):
            self.rest.create(f"{RBAC}/namespaces/{self._namespace}/{kind}", body)
        return self.user(name, None)

    def read(self, path: str, token: str, body: dict[str, Any] | None = None) -> str:
        """Return an answer of the controller as text."""
        reader = Rest(self.urls["http"], token=token, ca_file=self._authority)
        return json.dumps(reader.get(path) if body is None else reader.create(path, body))

    def status(self, port: str, path: str, token: str = "") -> int:
        """Return the status of the answer to a reader who trusts the controllers' authority."""
        try:
            Rest(self.urls[port], token=token, ca_file=self._authority).get(path)
        except RestError as error:
            return error.status
        return 200


@pytest.fixture
def site(real_cluster: Cluster, controllers: Controllers, tmp_path: Path) -> Iterator[Site]:
    """Give a controller that knows the cluster."""
    scene, rest = real_cluster.new_scene(), real_cluster.rest
    replica = controllers.start(real_cluster.kubeconfig, "--bind", "0.0.0.0", "--namespace", scene.namespace)
    wait_for(replica.urls, "the controller's ports")
    secret = rest.get(f"/api/v1/namespaces/{scene.namespace}/secrets/berth-certificates")
    authority = tmp_path / "ca.crt"
    authority.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    roles = [
        one
        for one in yaml.safe_load_all(ROLES.read_text())
        if one["kind"] == "ClusterRole" and one["metadata"]["name"].endswith("-reader")
    ]
    for role in roles:
        rest.create(f"{RBAC}/clusterroles", role)
    # No Jobs are queued in the controller's own namespace.
    tenants = real_cluster.new_scene(), real_cluster.new_scene()
    found = Site(*tenants, dict(replica.urls()), authority)
    wait_for(lambda: found.status("http", "/readyz") == 200, "a controller that is ready")
    yield found
    for role in roles:
        rest.delete(f"{RBAC}/clusterroles/{role['metadata']['name']}")


def test_a_controller_on_a_cluster_is_read_by_those_with_a_role(site: Site) -> None:
    stranger, dashboard, prometheus = (
        site.user("stranger", None),
        site.user("dashboard", "berth-state-reader"),
        site.user("prometheus", "berth-metrics-reader"),
    )

    assert {url.partition(":")[0] for name, url in site.urls.items() if name != "event"} == {"https"}
    tokens = {
        "": "",
        "forged": "forged",
        "stranger": stranger,
        "dashboard": dashboard,
        "prometheus": prometheus,
    }
    state = {name: site.status("http", QUEUES, token) for name, token in tokens.items()}
    metrics = {name: site.status("metrics", "/metrics", token) for name, token in tokens.items()}
    refused = {"": 401, "forged": 401, "stranger": 403}
    assert state == {**refused, "dashboard": 200, "prometheus": 403}
    assert metrics == {**refused, "dashboard": 403, "prometheus": 200}
    assert [site.status(port, "/healthz") for port in ("http", "metrics")] == [200, 200]


def test_a_right_in_one_namespace_shows_nothing_of_another(site: Site) -> None:
    # One queue for two namespaces: the other one has all of its quota, and this one waits.
    shared = site.scene.create_queue(cpus=1)
    site.other.create_local_queue("main", shared)
    site.other.create_job("secret-running")
    site.other.wait_admitted("secret-running")
    site.scene.create_job("mine")
    site.scene.wait_pending("mine")
    mine = site.scene.workloads_of("mine")[0]["metadata"]["name"]
    token, own = site.tenant("ada"), site.scene.namespace

    lists = ("workloads", "localqueues", "promises", "decisions", "clusterqueues", "cohorts", "racks")
    whole = [site.read(f"/v1/{one}", token) for one in (*lists, "plan")]
    whole += [site.read(f"/v1/{one}?namespace={own}", token) for one in lists[:4]]
    whole.append(site.read(f"/v1/clusterqueues/{shared}/pendingworkloads", token))
    whole += [site.read(f"/v1/workloads/{own}/{mine}{rest}", token) for rest in ("", "/explanation")]
    whole.append(site.read("/v1/what-if", token, {"namespace": own, "objects": []}))

    assert mine in whole[0]
    assert f'"name": "{shared}"' in whole[4]
    assert '"heldByHidden": {"count": 1' in whole[-2]
    hidden = (site.other.namespace, "secret")
    assert [one for one in whole if any(name in one for name in hidden)] == []
    theirs = (
        f"/v1/workloads?namespace={site.other.namespace}",
        f"/v1/localqueues/{site.other.namespace}/main",
    )
    assert {site.status("http", path, token) for path in theirs} == {403}
