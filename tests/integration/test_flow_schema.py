"""deploy/flowschema.yaml on a real API server: which requests it serves at the level of leader election."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.controlplane import ControlPlane
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
SHIPPED = Path(__file__).parents[2] / "deploy" / "flowschema.yaml"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/berth-default"
ACCOUNT = "system:serviceaccount:berth-system:berth-controller"


@pytest.fixture
def schema(control_plane: ControlPlane) -> Iterator[str]:
    """Apply the file, and give the FlowSchema's name until the test ends."""
    shipped = yaml.safe_load(SHIPPED.read_text())
    name: str = control_plane.rest.create(f"{FLOW_CONTROL}/flowschemas", shipped)["metadata"]["name"]
    yield name
    control_plane.rest.delete(f"{FLOW_CONTROL}/flowschemas/{name}")


def level_of(plane: ControlPlane, path: str, user: str) -> str:
    """Return the priority level at which the server serves a GET of this user; the answer does not matter."""
    address = urlsplit(plane.server)
    context = ssl.create_default_context(cafile=plane.ca_file)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
    headers = {"Authorization": f"Bearer {plane.token}", "Impersonate-User": user}
    try:
        connection.request("GET", path, headers=headers)
        uid = connection.getresponse().headers["X-Kubernetes-PF-PriorityLevel-UID"]
    finally:
        connection.close()
    levels = plane.rest.get(f"{FLOW_CONTROL}/prioritylevelconfigurations")["items"]
    return {str(one["metadata"]["uid"]): str(one["metadata"]["name"]) for one in levels}[uid]


def test_renewals_of_the_lease_alone_are_served_at_the_level_of_leader_election(
    control_plane: ControlPlane, schema: str
) -> None:
    def level(path: str, user: str = ACCOUNT) -> str:
        return level_of(control_plane, path, user)

    own = LEASES.format("berth-system")
    wait_for(lambda: level(own) == "leader-election", f"{schema} in force")

    assert level(LEASES.format("default")) != "leader-election"
    assert level("/apis/kueue.x-k8s.io/v1beta2/workloads") != "leader-election"
    assert level(own, "system:serviceaccount:berth-system:default") != "leader-election"
