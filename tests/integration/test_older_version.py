"""v1beta1 of Kueue's kinds on a real API server, which asks a running controller to convert.

deploy/crds is applied as it is shipped, but for the port, which is one of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admission.controller.http.ca_injector import DEFINITIONS
from tests import parts
from tests.controlplane import ControlPlane, RestError, find_assets
from tests.controlplane.definitions import CRDS
from tests.integration.replica import Replica
from tests.integration.shipped import DEPLOY, NAMESPACE, has_bundle, kubectl
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("older_version")]

OLDER, NEWER = "/apis/kueue.x-k8s.io/v1beta1", "/apis/kueue.x-k8s.io/v1beta2"
# As Kueue's documentation showed them before v1beta2.
MANIFESTS = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: default-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: sample-check}
spec: {controllerName: example.com/check, retryDelayMinutes: 15}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cluster-queue}
spec:
  cohort: all
  namespaceSelector: {}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  admissionChecks: []
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
        - name: default-flavor
          resources:
            - {name: cpu, nominalQuota: 9, borrowingLimit: 1}
            - {name: memory, nominalQuota: 36Gi}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: user-queue, namespace: default}
spec: {clusterQueue: cluster-queue}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: sample-priority}
value: 10000
description: Sample priority
---
apiVersion: batch/v1
kind: Job
metadata:
  name: sample-job
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: user-queue, kueue.x-k8s.io/priority-class: sample-priority}
spec:
  parallelism: 3
  completions: 3
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: sleep, resources: {requests: {cpu: 1, memory: 200Mi}}}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a control plane with deploy/crds, a controller that converts, and MANIFESTS applied."""
    parts.need("kubectl")
    folder = tmp_path_factory.mktemp("older")
    with ControlPlane(find_assets(), folder) as plane:
        kubectl(plane, "apply", "-k", str(DEPLOY / "crds"))
        plane.rest.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        # An address of this machine under the name of the shipped Service.
        service = {
            "metadata": {"name": "berth-controller"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        plane.rest.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
        for plural in ("workloads", "clusterqueues", "localqueues"):
            plane.rest.wait(f"{NEWER}/{plural}", lambda found: "items" in found)
        flags = ("--namespace", NAMESPACE, "--webhook-port", "0")
        replica = Replica(plane.kubeconfig, tmp_path_factory.mktemp("controller"), *flags)
        with replica.child:
            replica.wait_leading()
            convert_at(plane, int(replica.urls()["webhook"].rpartition(":")[2]))
            manifests = folder / "manifests.yaml"
            manifests.write_text(MANIFESTS)
            kubectl(plane, "apply", "-f", str(manifests))
            yield plane


def convert_at(plane: ControlPlane, port: int) -> None:
    """Have kube-apiserver ask at this port, and return once it does and trusts the answers."""
    client = {"service": {"port": port}}
    for name in DEFINITIONS:
        plane.rest.patch(f"{CRDS}/{name}", {"spec": {"conversion": {"webhook": {"clientConfig": client}}}})
        plane.rest.wait(f"{CRDS}/{name}", has_bundle)
    probe = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "probe"}}

    def is_converted() -> bool:
        try:
            plane.rest.create(f"{OLDER}/clusterqueues?dryRun=All", probe)
        except RestError:
            return False
        return True

    wait_for(is_converted, "an object converted")


def workload(plane: ControlPlane, version: str) -> Any:
    """Return the one Workload in a version, once it is admitted."""
    path = f"{version}/namespaces/default/workloads"
    found = plane.rest.wait(
        path, lambda found: any("admission" in one.get("status", {}) for one in found["items"])
    )
    (only,) = found["items"]
    return only


def test_manifests_of_the_older_version_are_stored_in_the_newer_one(plane: ControlPlane) -> None:
    queue = plane.rest.get(f"{NEWER}/clusterqueues/cluster-queue")["spec"]
    check = plane.rest.get(f"{NEWER}/admissionchecks/sample-check")["spec"]

    assert queue["cohortName"] == "all"
    assert queue["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    assert not {"cohort", "admissionChecks", "admissionChecksStrategy"} & {*queue}
    assert check == {"controllerName": "example.com/check"}


def test_a_job_in_such_a_queue_is_admitted_and_its_workload_has_the_fields_of_each_version(
    plane: ControlPlane,
) -> None:
    newer, older = workload(plane, NEWER), workload(plane, OLDER)

    assert newer["spec"]["priorityClassRef"]["name"] == "sample-priority"
    assert (older["spec"]["priorityClassName"], older["spec"]["priorityClassSource"]) == (
        "sample-priority",
        "kueue.x-k8s.io/workloadpriorityclass",
    )
    assert older["status"] == newer["status"]
    assert older["spec"]["podSets"] == newer["spec"]["podSets"]


def test_a_client_that_writes_back_what_it_read_changes_nothing(plane: ControlPlane) -> None:
    before = plane.rest.get(f"{NEWER}/clusterqueues/cluster-queue")

    def written_back() -> Any:
        read = plane.rest.get(f"{OLDER}/clusterqueues/cluster-queue")
        try:
            return plane.rest.request("PUT", f"{OLDER}/clusterqueues/cluster-queue", read)
        # The controller writes the status meanwhile.
        except RestError as error:
            if error.reason == "Conflict":
                return None
            raise

    read = wait_for(written_back, "the queue written back")
    after = plane.rest.get(f"{NEWER}/clusterqueues/cluster-queue")
    assert read["spec"]["cohort"] == "all"
    assert (after["spec"], after["metadata"]["generation"]) == (
        before["spec"],
        before["metadata"]["generation"],
    )


def test_the_controller_writes_the_status_of_a_queue_that_is_applied_in_the_older_version(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Server-side apply in v1beta1 has the API server convert at each later write in v1beta2."""
    manifest = tmp_path / "applied.yaml"
    manifest.write_text(
        "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: applied}, "
        "spec: {cohort: all, namespaceSelector: {}}}"
    )

    kubectl(plane, "apply", "--server-side", "-f", str(manifest))

    plane.rest.wait(f"{OLDER}/clusterqueues/applied", lambda found: found.get("status", {}).get("conditions"))


def test_rules_hold_in_the_older_version_too(plane: ControlPlane) -> None:
    flavors = [
        {"name": "default-flavor", "resources": [{"name": "cpu", "nominalQuota": 1, "borrowingLimit": 1}]}
    ]
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "alone"},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]},
    }

    with pytest.raises(RestError, match="borrowingLimit must be nil when cohort is empty"):
        plane.rest.create(f"{OLDER}/clusterqueues", queue)


POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "usual"}
QUEUE_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "usual"}
OTHER_SOURCE = {"priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}


@pytest.mark.parametrize(
    ("reference", "has_quota", "change", "want"),
    [
        pytest.param(None, True, {"active": False}, "", id="one without class is deactivated, with quota"),
        pytest.param(
            None, False, {"active": False}, "", id="one without class is deactivated, without quota"
        ),
        pytest.param(POD_CLASS, True, {"active": False}, "", id="one with a PriorityClass is deactivated"),
        pytest.param(QUEUE_CLASS, True, {"active": False}, "", id="one with a WorkloadPriorityClass too"),
        pytest.param(
            POD_CLASS, True, OTHER_SOURCE, "priorityClassSource is immutable", id="the source stays"
        ),
        pytest.param(POD_CLASS, False, OTHER_SOURCE, "", id="the source changes without quota"),
        pytest.param(
            POD_CLASS,
            True,
            {"priorityClassName": "other"},
            "priorityClassName is immutable",
            id="the name of a PriorityClass stays",
        ),
        pytest.param(
            QUEUE_CLASS,
            True,
            {"priorityClassName": "other"},
            "",
            id="the name of a WorkloadPriorityClass changes",
        ),
    ],
)
def test_what_a_workload_with_quota_may_change_in_the_older_version(
    plane: ControlPlane, reference: Any, has_quota: bool, change: dict[str, Any], want: str
) -> None:
    """Source: Kueue, apis/kueue/v1beta1, rules of Workload."""
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    spec = {"podSets": [pods], **({"priorityClassRef": reference, "priority": 0} if reference else {})}
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    body = {**kind, "metadata": {"generateName": "rule-"}, "spec": spec}
    name = plane.rest.create(f"{NEWER}/namespaces/kube-public/workloads", body)["metadata"]["name"]
    path = f"namespaces/kube-public/workloads/{name}"
    if has_quota:
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
        at = {"lastTransitionTime": "2026-11-24T12:00:00Z"}
        assigned = {"clusterQueue": "cluster-queue", "podSetAssignments": [{"name": "main", "count": 1}]}
        status = {"admission": assigned, "conditions": [{**reserved, **at}]}
        plane.rest.patch(f"{NEWER}/{path}/status", {"status": status})

    try:
        plane.rest.patch(f"{OLDER}/{path}", {"spec": change})
        refusal = ""
    except RestError as error:
        refusal = str(error)

    assert want in refusal
    assert bool(refusal) == bool(want)


def test_without_a_controller_only_the_older_version_fails(plane: ControlPlane) -> None:
    """The last of this module: the others need the conversion."""
    path = f"{CRDS}/clusterqueues.kueue.x-k8s.io"
    port = plane.rest.get(path)["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"]

    def ask(number: int) -> None:
        client = {"service": {"port": number}}
        plane.rest.patch(path, {"spec": {"conversion": {"webhook": {"clientConfig": client}}}})

    def refusal() -> str:
        try:
            plane.rest.get(f"{OLDER}/clusterqueues/cluster-queue")
        except RestError as error:
            return str(error)
        return ""

    # Port 1 of this machine is closed.
    ask(1)
    try:
        wait_for(lambda: "conversion webhook" in refusal(), "the older version failing")
        plane.rest.patch(f"{NEWER}/clusterqueues/cluster-queue", {"metadata": {"labels": {"team": "a"}}})
        labels = plane.rest.get(f"{NEWER}/clusterqueues/cluster-queue")["metadata"]["labels"]
        assert labels == {"team": "a"}
    finally:
        ask(port)
