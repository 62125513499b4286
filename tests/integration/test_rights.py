"""deploy/ as it is shipped, on a real API server: what its roles, policies and Pod Security allow and refuse.

The controller runs as the ServiceAccount of deploy/, with the rights that are granted there and no others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.controller.http.ca_injector import DEFINITIONS, WEBHOOKS
from api.jobs.owners.table import OWNER_KINDS
from tests import parts
from tests.controlplane import ControlPlane, Rest, RestError, find_assets
from tests.controlplane.definitions import CRDS, install_crds
from tests.integration import leadersets, shipped
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import make_job, make_workload
from tests.integration.nodes import simulated_nodes
from tests.integration.played import play_all
from tests.integration.pods import make_pod
from tests.integration.shipped import CONTROLLER, DEPLOY, NAMESPACE, bind, has_bundle, install, kubectl, may
from tests.integration.test_serving import REGISTRATION, is_asked, is_trusting, registration
from tests.integration.waiting import wait_for
from tests.owners import SAMPLES, OwnerSample, definition

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("rights")]

# Also checks which clients may set blockOwnerDeletion, which OpenShift does by default.
STRICT = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
KUEUE = "kueue.x-k8s.io"
SHIPPED_CONFIG = yaml.safe_load((DEPLOY / "config.yaml").read_text())["data"]["config.yaml"]
USER, ADMIN, CHECKER, EDITOR = "ada", "quota-admin", "check-controller", "edith"
REFUSED = "the status of a Workload is written by Berth alone"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a control plane of its own with deploy/ applied, and users with roles.

    USER has the shipped role in the namespace `team`, ADMIN the other one everywhere. EDITOR has the role of
    the cluster that lets it write pods in `team`.
    """
    parts.need("controllers")
    parts.need("kubectl")
    folder = tmp_path_factory.mktemp("controlplane")
    with ControlPlane(find_assets(), folder, apiserver_flags=[STRICT]) as plane:
        plane.start_controllers()
        kubectl(plane, "apply", "-k", str(DEPLOY))
        # The kinds are served a moment after their definitions are there.
        for plural in ("workloads", "localqueues", "clusterqueues"):
            plane.rest.wait(f"/apis/{KUEUE}/v1beta2/{plural}", lambda found: "items" in found)
        plane.rest.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        bind(plane, "berth-batch-user-role", USER, namespace="team")
        bind(plane, "berth-batch-admin-role", ADMIN)
        bind(plane, "edit", EDITOR, namespace="team")
        make_check_controller(plane)
        wait_for(lambda: may(plane, USER, "create batch/jobs", namespace="team"), "the roles collected")
        yield plane


def make_check_controller(plane: ControlPlane) -> None:
    """Give a user the rights that the controller of an AdmissionCheck needs in Kueue as well."""
    rules = [
        {
            "apiGroups": [KUEUE],
            "resources": ["workloads/status", "admissionchecks/status"],
            "verbs": ["update", "patch"],
        },
        {"apiGroups": [KUEUE], "resources": ["workloads"], "verbs": ["get"]},
    ]
    plane.rest.create(f"{shipped.RBAC}/clusterroles", {"metadata": {"name": "checker"}, "rules": rules})
    bind(plane, "checker", CHECKER)


# --- the script that installs ---------------------------------------------------------------------


@pytest.mark.covers("002_27")
def test_the_script_can_be_run_again_and_keeps_the_secrets(plane: ControlPlane) -> None:
    def stored() -> list[dict[str, str]]:
        secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        return [plane.rest.get(f"{secrets}/{name}")["data"] for name in ("berth-redis", "berth-redis-tls")]

    install(plane)
    made = stored()

    install(plane)

    assert stored() == made
    assert [{*one} for one in made] == [{"password", "signing-key"}, {"tls.crt", "tls.key", "ca.crt"}]


# --- Pod Security --------------------------------------------------------------------------------


def test_the_shipped_pods_are_created_where_pod_security_is_restricted(plane: ControlPlane) -> None:
    def names() -> list[str]:
        pods = plane.rest.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return sorted(pod["metadata"]["labels"]["app"] for pod in pods)

    wait_for(lambda: names() == ["berth-controller", "berth-controller", "berth-redis"], "three pods")


def test_no_pod_with_privileges_is_created_beside_them(plane: ControlPlane) -> None:
    pod = {"metadata": {"name": "root"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    with pytest.raises(RestError, match='violates PodSecurity "restricted'):
        plane.rest.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)


def test_the_extenders_pods_keep_to_restricted_too(plane: ControlPlane) -> None:
    documents = yaml.safe_load_all((DEPLOY / "extender" / "extender.yaml").read_text())
    (template,) = (one["spec"]["template"] for one in documents if one["kind"] == "Deployment")
    # A priority class of the cluster's own, which is for kube-system alone.
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    pod = {"metadata": {"name": "extender"}, "spec": spec}

    plane.rest.create(f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)


def test_a_release_names_every_image_by_its_digest(plane: ControlPlane, tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    overlay = {
        "resources": [os.path.relpath(DEPLOY, tmp_path)],
        "images": [{"name": name, "digest": digest} for name in ("berth-queue", "redis")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    images = re.findall(r"image: (\S+)", kubectl(plane, "kustomize", str(tmp_path)))

    assert sorted(images) == [f"berth-queue@{digest}", f"redis@{digest}"]


# --- who may do what -----------------------------------------------------------------------------

# What `kubectl auth can-i` answers: user in the own namespace, user elsewhere, administrator, controller.
RIGHTS = {
    "create batch/jobs": "yes no yes no",
    "patch batch/jobs": "yes no yes yes",
    "update batch/jobs": "yes no yes no",
    "delete batch/jobs": "yes no yes yes",
    "patch batch/jobs/status": "no no no yes",
    "get batch/jobs": "yes no yes yes",
    "create leaderworkerset.x-k8s.io/leaderworkersets": "yes no yes no",
    "patch /pods": "no no no yes",
    "delete /pods": "no no no yes",
    "create /pods/eviction": "no no no yes",
    "update /pods": "no no no no",
    "get /secrets": "no no no no",
    "create authentication.k8s.io/tokenreviews": "no no no yes",
    "list kueue.x-k8s.io/workloads": "yes no yes yes",
    "create kueue.x-k8s.io/workloads": "no no yes yes",
    "patch kueue.x-k8s.io/workloads": "no no yes yes",
    "update kueue.x-k8s.io/workloads/status": "no no no yes",
    "patch kueue.x-k8s.io/workloads/status": "no no no no",
    "list kueue.x-k8s.io/localqueues": "yes no yes yes",
    "create kueue.x-k8s.io/localqueues": "no no yes no",
    "update kueue.x-k8s.io/localqueues/status": "no no no yes",
    "create kueue.x-k8s.io/clusterqueues": "no no yes no",
    "patch kueue.x-k8s.io/clusterqueues": "no no yes yes",
    "create kueue.x-k8s.io/cohorts": "no no yes no",
    "patch kueue.x-k8s.io/cohorts": "no no yes no",
    "update kueue.x-k8s.io/resourceflavors": "no no yes no",
    "update kueue.x-k8s.io/topologies": "no no yes no",
    "update kueue.x-k8s.io/admissionchecks": "no no yes no",
    "update kueue.x-k8s.io/admissionchecks/status": "no no no yes",
    "create kueue.x-k8s.io/workloadpriorityclasses": "no no yes no",
    "create berth.dev/admissionpolicies": "no no yes no",
    "update berth.dev/admissionpolicies/status": "no no no yes",
    "create rbac.authorization.k8s.io/clusterroles": "no no no no",
    "delete admissionregistration.k8s.io/validatingadmissionpolicies": "no no no no",
    # Kueue has no roles for people that write AppWrappers.
    "create workload.codeflare.dev/appwrappers": "no no no no",
    "patch workload.codeflare.dev/appwrappers": "no no no yes",
    "patch workload.codeflare.dev/appwrappers/status": "no no no no",
    **{
        f"{verb} {row.group}/{row.plural}{part}": want
        for row in OWNER_KINDS
        if row.kind != "AppWrapper"
        for verb, part, want in (
            ("create", "", "yes no yes no"),
            ("patch", "", "yes no yes yes"),
            ("patch", "/status", "no no no no"),
        )
    },
}


@pytest.mark.parametrize("right", RIGHTS)
def test_users_administrators_and_the_controller_have_the_rights_of_the_table(
    plane: ControlPlane, right: str
) -> None:
    found = (
        may(plane, USER, right, namespace="team"),
        may(plane, USER, right, namespace="default"),
        may(plane, ADMIN, right, namespace="team"),
        may(plane, CONTROLLER, right, namespace="team"),
    )

    assert " ".join("yes" if one else "no" for one in found) == RIGHTS[right]


# --- what is written by the controller alone -------------------------------------------------------


@pytest.fixture
def workload(plane: ControlPlane) -> Iterator[str]:
    """Give the path of a Workload whose status the controller has begun to write."""
    collection = f"/apis/{KUEUE}/v1beta2/namespaces/team/workloads"
    plane.rest.create(collection, make_workload("one"))
    path = f"{collection}/one"
    set_status(as_user(plane, CONTROLLER), path, {"conditions": [make_condition("QuotaReserved")]})
    yield path
    plane.rest.delete(path)


def as_user(plane: ControlPlane, user: str) -> Rest:
    """Return the administrator's client, which acts for another user."""
    return Rest(plane.server, token=plane.token, ca_file=plane.ca_file, impersonated=user)


def make_condition(type_: str, status: str = "False") -> dict[str, str]:
    """Return a condition of a Workload."""
    since = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": "Test", "message": "", "lastTransitionTime": since}


def set_status(rest: Rest, path: str, status: Any) -> Any:
    """Replace a Workload's status as this user."""
    return rest.request("PUT", f"{path}/status", {**rest.get(path), "status": status})


def check_state(state: str) -> dict[str, Any]:
    """Return the status of one AdmissionCheck of a Workload."""
    at = "2026-01-01T00:00:00Z"
    return {"name": "budget", "state": state, "lastTransitionTime": at, "message": ""}


def test_not_even_the_clusters_administrator_writes_the_status_of_a_workload(
    plane: ControlPlane, workload: str
) -> None:
    wait_for(lambda: is_refused(plane.rest, workload), "the policy in force")

    with pytest.raises(RestError, match=REFUSED):
        forge(plane.rest, workload)


def forge(rest: Rest, workload: str, query: str = "") -> None:
    """Say that a Workload is admitted."""
    body = {"status": {"conditions": [make_condition("Admitted", "True")]}}
    rest.patch(f"{workload}/status{query}", body)


def is_refused(rest: Rest, workload: str) -> bool:
    """Return whether a forged condition is refused, without writing it."""
    return is_forbidden(lambda: forge(rest, workload, "?dryRun=All"))


def is_forbidden(request: Callable[[], object]) -> bool:
    """Return whether the server refuses this request as forbidden."""
    try:
        request()
    except RestError as error:
        return error.reason == "Forbidden"
    return False


def test_the_controller_of_a_check_sets_its_state_and_nothing_else(
    plane: ControlPlane, workload: str
) -> None:
    wait_for(lambda: is_refused(plane.rest, workload), "the policy in force")
    checker = as_user(plane, CHECKER)
    before = plane.rest.get(workload)["status"]

    set_status(checker, workload, {**before, "admissionChecks": [check_state("Pending")]})
    set_status(checker, workload, {**before, "admissionChecks": [check_state("Ready")]})
    with pytest.raises(RestError, match=REFUSED):
        set_status(checker, workload, {"admissionChecks": [check_state("Ready")]})
    forged = {**before, "conditions": [make_condition("QuotaReserved", "True")]}
    with pytest.raises(RestError, match=REFUSED):
        set_status(checker, workload, forged)

    assert plane.rest.get(workload)["status"] == {**before, "admissionChecks": [check_state("Ready")]}


def test_none_but_the_controller_says_what_was_measured_of_a_workload(
    plane: ControlPlane, workload: str
) -> None:
    def annotate(user: str, **annotations: str) -> None:
        named = {f"berth.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
        as_user(plane, user).patch(f"{workload}{query}", {"metadata": {"annotations": named}})

    query = "?dryRun=All"
    wait_for(lambda: is_forbidden(lambda: annotate(ADMIN, checkpoint_measured="{}")), "the policy in force")
    query = ""
    annotate(ADMIN, priority_boost="1")
    with pytest.raises(RestError, match="is written by Berth alone"):
        annotate(ADMIN, checkpoint_measured="{}")
    annotate(CONTROLLER, checkpoint_measured='{"save":[1]}')
    # The rest of the object is written as before.
    annotate(ADMIN, priority_boost="2")

    found = plane.rest.get(workload)["metadata"]["annotations"]
    assert found == {"berth.dev/checkpoint-measured": '{"save":[1]}', "berth.dev/priority-boost": "2"}


def test_only_the_controller_names_the_submitter_of_a_workload(plane: ControlPlane, workload: str) -> None:
    def name(user: str, submitter: str | None) -> None:
        annotations = {"berth.dev/submitter": submitter, "note": user}
        as_user(plane, user).patch(f"{workload}{query}", {"metadata": {"annotations": annotations}})

    query = "?dryRun=All"
    wait_for(lambda: is_forbidden(lambda: name(ADMIN, "chief")), "the policy in force")
    query = ""
    name(CONTROLLER, "ada")
    for forged in ("chief", None):
        with pytest.raises(RestError, match="submitter of a Workload is written by Berth alone"):
            name(ADMIN, forged)
    # The rest of the object is written as before.
    name(ADMIN, "ada")
    prebuilt = make_workload("prebuilt")
    prebuilt["metadata"]["annotations"] = {"berth.dev/submitter": "chief"}
    with pytest.raises(RestError, match="submitter of a Workload is written by Berth alone"):
        plane.rest.create(workload.rpartition("/")[0], prebuilt)

    found = plane.rest.get(workload)["metadata"]["annotations"]
    assert found == {"berth.dev/submitter": "ada", "note": ADMIN}


@pytest.fixture
def held_pod(plane: ControlPlane) -> Iterator[str]:
    """Give the path of a pod that waits in a queue, as the webhook leaves it."""
    collection = "/api/v1/namespaces/team/pods"
    plane.rest.wait("/api/v1/namespaces/team/serviceaccounts", lambda found: found["items"])
    gates = [{"name": name} for name in GATES]
    plane.rest.create(collection, make_pod("held", schedulingGates=gates))
    yield f"{collection}/held"
    as_user(plane, CONTROLLER).patch(f"{collection}/held", {"metadata": {"finalizers": None}})
    plane.rest.delete(f"{collection}/held", {"gracePeriodSeconds": 0})


GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
OFF: dict[str, Any] = {
    "the label": {"metadata": {"labels": {"kueue.x-k8s.io/managed": None}}},
    "the gates": {"spec": {"schedulingGates": None}},
    **{
        f"the gate {gate}": {"spec": {"schedulingGates": [{"name": one} for one in GATES if one != gate]}}
        for gate in GATES
    },
    "the finalizer": {"metadata": {"finalizers": None}},
}


@pytest.mark.parametrize("what", OFF)
def test_a_tenant_that_may_write_pods_cannot_take_from_a_queued_pod(
    plane: ControlPlane, held_pod: str, what: str
) -> None:
    editor = as_user(plane, EDITOR)
    wait_for(lambda: may(plane, EDITOR, "patch /pods", namespace="team"), "the role collected")
    dry = f"{held_pod}?dryRun=All"
    wait_for(lambda: is_forbidden(lambda: editor.patch(dry, OFF[what])), "the policy in force")

    with pytest.raises(RestError, match=r"berth-queued-pods.* of a (queued )?pod"):
        editor.patch(held_pod, OFF[what])
    # Everything else of it is the tenant's.
    editor.patch(held_pod, {"metadata": {"labels": {"team": "a"}}})
    as_user(plane, CONTROLLER).patch(held_pod, OFF[what])


JOB_UID, POD_GROUP = "batch.kubernetes.io/controller-uid", "kueue.x-k8s.io/pod-group-name"
SLICE, POD_SET = "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/podset"
# As the Job controller and Berth leave a pod of a Job.
COUNTED = {"kueue.x-k8s.io/managed": "true", JOB_UID: "1", POD_GROUP: "g", POD_SET: "main"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "1", "controller": True}


@pytest.fixture
def counted_pod(plane: ControlPlane) -> Iterator[str]:
    """Give the path of a pod of a Job in a queue, which runs on a node."""
    wait_for(lambda: may(plane, EDITOR, "patch /pods", namespace="team"), "the role collected")
    collection = "/api/v1/namespaces/team/pods"
    plane.rest.wait("/api/v1/namespaces/team/serviceaccounts", lambda found: found["items"])
    slices = {SLICE: "first"}
    pod = make_pod("counted", queue=None, is_held=False, labels=COUNTED, annotations=slices, nodeName="one")
    pod["metadata"].update(ownerReferences=[OWNER], finalizers=["test.dev/kept"])
    plane.rest.create(collection, pod)
    path = f"{collection}/counted"
    yield path
    plane.rest.patch(path, {"metadata": {"finalizers": None}})
    plane.rest.delete(path, {"gracePeriodSeconds": 0})
    wait_for(lambda: not plane.rest.exists(path), "the pod gone")


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {JOB_UID: None}}, id="its Job"),
        pytest.param({"labels": {POD_GROUP: "other"}}, id="its group"),
        pytest.param({"annotations": {SLICE: None}}, id="its elastic Job"),
        pytest.param({"labels": {POD_SET: "other"}}, id="its pod set"),
        pytest.param({"ownerReferences": [{**OWNER, "controller": False}]}, id="its controller"),
    ],
)
def test_a_tenant_that_may_write_pods_cannot_take_one_away_from(
    plane: ControlPlane, counted_pod: str, metadata: dict[str, Any]
) -> None:
    with pytest.raises(RestError, match="that name its Job, pod group or Workload must stay"):
        as_user(plane, EDITOR).patch(counted_pod, {"metadata": metadata})
    # The Job controller adopts pods and lets them go.
    system = as_user(plane, "system:serviceaccount:kube-system:job-controller")
    system.patch(f"{counted_pod}?dryRun=All", {"metadata": metadata})


ORPHANING = {
    "its pods": {"propagationPolicy": "Orphan"},
    "its pods, in the older words": {"orphanDependents": True},
    # For compatibility the API server then leaves what a Job owns, and deletes what any other kind does.
    "its pods, by saying nothing of them": None,
}


@pytest.mark.parametrize("options", ORPHANING.values(), ids=ORPHANING)
def test_a_running_job_in_a_queue_cannot_be_deleted_without(plane: ControlPlane, options: Any) -> None:
    editor, path = as_user(plane, EDITOR), "/apis/batch/v1/namespaces/team/jobs"
    wait_for(
        lambda: may(plane, EDITOR, "deletecollection batch/jobs", namespace="team"), "the role collected"
    )
    editor.create(path, make_job("runs", suspend=False))
    try:
        with pytest.raises(RestError, match="cannot be deleted without its pods"):
            editor.delete(f"{path}/runs", options)
        with pytest.raises(RestError, match="cannot be deleted without its pods"):
            editor.delete(path, options)
        editor.patch(f"{path}/runs", {"spec": {"suspend": True}})
        again = f"{path}/runs?dryRun=All"
        wait_for(lambda: not is_forbidden(lambda: editor.delete(again, options)), "its pods gone")
    finally:
        editor.delete(f"{path}/runs", {"propagationPolicy": "Background"})
        wait_for(lambda: not plane.rest.exists(f"{path}/runs"), "the Job gone")


def test_pods_in_a_queue_have_an_hour_to_end_at_most(plane: ControlPlane) -> None:
    jobs, pods = "/apis/batch/v1/namespaces/team/jobs", "/api/v1/namespaces/team/pods"
    user, editor, dry = as_user(plane, USER), as_user(plane, EDITOR), "?dryRun=All"
    day: dict[str, Any] = {"terminationGracePeriodSeconds": 86_400}

    with pytest.raises(RestError, match="at most 3600 seconds"):
        user.create(f"{jobs}{dry}", make_job("slow", **day))
    with pytest.raises(RestError, match="at most 3600 seconds"):
        editor.create(f"{pods}{dry}", make_pod("slow", **day))
    # Outside of queues it is the cluster's own affair, until the Job joins one.
    user.create(jobs, make_job("slow", queue=None, **day))
    try:
        with pytest.raises(RestError, match="at most 3600 seconds"):
            user.patch(f"{jobs}/slow", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}}})
    finally:
        user.delete(f"{jobs}/slow", {"propagationPolicy": "Background"})


def test_no_workload_is_created_for_pods_that_may_take_a_day_to_end(plane: ControlPlane) -> None:
    """So a JobSet or the like, whose pods the policy does not see in its queue, is not admitted."""
    slow = make_workload("slow")
    second = make_workload("second")["spec"]["podSets"][0] | {"name": "second"}
    second["template"]["spec"]["terminationGracePeriodSeconds"] = 86_400
    slow["spec"]["podSets"].append(second)
    create = partial(
        as_user(plane, CONTROLLER).create, f"/apis/{KUEUE}/v1beta2/namespaces/team/workloads?dryRun=All"
    )
    wait_for(lambda: is_forbidden(lambda: create(slow)), "the policy in force")

    with pytest.raises(RestError, match="at most 3600 seconds"):
        create(slow)


def test_a_queued_pod_is_not_given_more_time_by_its_deletion(plane: ControlPlane, counted_pod: str) -> None:
    editor = as_user(plane, EDITOR)
    eviction = {"metadata": {"name": "counted"}, "deleteOptions": {"gracePeriodSeconds": 86_400}}

    with pytest.raises(RestError, match="a grace period that is longer than its own"):
        editor.delete(counted_pod, {"gracePeriodSeconds": 1})
    with pytest.raises(RestError, match="at most 3600 seconds"):
        editor.request("POST", f"{counted_pod}/eviction", eviction)
    editor.delete(f"{counted_pod}?dryRun=All")


def test_the_finalizer_of_a_pod_that_has_ended_may_be_removed(plane: ControlPlane, held_pod: str) -> None:
    wait_for(lambda: may(plane, EDITOR, "patch /pods", namespace="team"), "the role collected")
    as_user(plane, CONTROLLER).patch(held_pod, OFF["the gates"])
    plane.rest.patch(f"{held_pod}/status", {"status": {"phase": "Succeeded"}})

    as_user(plane, EDITOR).patch(held_pod, OFF["the finalizer"])


# --- the controller ------------------------------------------------------------------------------


@pytest.mark.covers("002_27", "003_19")
def test_the_roles_of_deploy_are_all_that_a_controller_needs(
    plane: ControlPlane, controllers: Controllers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with simulated_nodes(plane.kubeconfig, tmp_path_factory.mktemp("nodes"), "blue:1:64"):
        cluster = Cluster(rest=plane.rest, kubeconfig=plane.kubeconfig, pool="blue")
        ports = ("--visibility-port", "0", "--webhook-port", "0", "--extender-port", "0")
        account = shipped.account_kubeconfig(plane)
        started = controllers.start(
            account, "--namespace", NAMESPACE, *ports, config=SHIPPED_CONFIG, name="bound"
        )
        started.wait_leading()
        # It picks the kind up as it appears, and publishes its CA bundle.
        install_crds(plane.rest, [leadersets.DEFINITION])
        plane.rest.create(REGISTRATION, registration(f"{started.urls()['webhook']}/mutate"))
        try:
            plane.rest.wait(f"{REGISTRATION}/{WEBHOOKS}", is_trusting)
            for name in DEFINITIONS:
                plane.rest.wait(f"{CRDS}/{name}", has_bundle)
            wait_for(lambda: is_asked(cluster.new_scene()), "the webhook being asked")
            play_all(cluster, started)
        finally:
            plane.rest.delete(f"{REGISTRATION}/{WEBHOOKS}")

    # The server's own check of owners learns of a new kind some seconds after it serves it; until then the
    # Workload is created again and again.
    lines = (line for line in started.log().lower().splitlines() if "cannot find restmapping" not in line)
    assert not [line for line in lines if "forbidden" in line]


def test_an_integration_without_its_role_is_switched_off_and_named(
    plane: ControlPlane, controllers: Controllers
) -> None:
    roles = ("berth-controller-pod", "berth-controller-leaderworkerset")
    bindings = [f"{shipped.RBAC}/clusterrolebindings/{role}" for role in roles]
    kept = [plane.rest.get(path) for path in bindings]
    try:
        for path in bindings:
            plane.rest.delete(path)
        wait_for(lambda: not may(plane, CONTROLLER, "delete /pods"), "the right withdrawn")
        account = shipped.account_kubeconfig(plane)
        config = SHIPPED_CONFIG
        started = controllers.start(account, "--namespace", NAMESPACE, config=config, name="narrow")
        started.wait_logged("rights-missing", "integration=pod", 'missing="delete pods"', "pod.yaml")
        started.wait_logged(
            "rights-missing", "integration=leaderworkerset", 'missing="list, watch leaderworkersets"'
        )
        # What it does have the rights for goes on.
        started.wait_leading()
    finally:
        for one in kept:
            body = {key: one[key] for key in ("roleRef", "subjects")} | {
                "metadata": {"name": one["metadata"]["name"]}
            }
            plane.rest.create(f"{shipped.RBAC}/clusterrolebindings", body)
    assert "forbidden" not in started.log().lower()


# --- kinds beside Jobs ----------------------------------------------------------------------------

# As Berth marks the pods of what it has started.
MANAGED = {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}


def of_owner(kind: str) -> OwnerSample:
    """Return the sample of a kind of the table of owners."""
    return next(one for one in SAMPLES if one.row.kind == kind)


def in_no_queue(kind: str) -> dict[str, Any]:
    """Return an object as the controller of another kind creates it: its pods alone show its queue."""
    found = of_owner(kind).object(suspend=False, labels={"kueue.x-k8s.io/queue-name": None})
    if kind == "RayCluster":
        found["spec"]["headGroupSpec"]["template"].update(MANAGED)
    else:
        found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].update(MANAGED)
    return found


OWNERS = {
    **{f"a {one.row.kind} in a queue": one.object(suspend=False) for one in SAMPLES},
    "the JobSet of a TrainJob": in_no_queue("JobSet"),
    "the RayCluster of a RayJob": in_no_queue("RayCluster"),
}


@pytest.mark.parametrize("what", OWNERS)
def test_what_runs_in_a_queue_cannot_be_deleted_without_its_pods(plane: ControlPlane, what: str) -> None:
    owner = OWNERS[what]
    row = of_owner(owner["kind"]).row
    install_crds(plane.rest, [definition(row)])
    collection = f"/apis/{row.group}/{row.version}/namespaces/team/{row.plural}"
    owner["metadata"] = {"name": "j", "labels": owner["metadata"]["labels"]}
    plane.rest.create(collection, owner)
    path = f"{collection}/j?dryRun=All"
    try:
        orphaned = {"propagationPolicy": "Orphan"}
        wait_for(lambda: is_forbidden(lambda: plane.rest.delete(path, orphaned)), "the policy in force")
        for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
            with pytest.raises(RestError, match="cannot be deleted without its pods"):
                plane.rest.delete(path, options)
        for allowed in ({"propagationPolicy": "Foreground"}, None):
            plane.rest.delete(path, allowed)
    finally:
        plane.rest.delete(f"{collection}/j")
        wait_for(lambda: not plane.rest.exists(f"{collection}/j"), "it gone")


def test_a_job_that_another_kind_owns_cannot_be_deleted_without_its_pods(plane: ControlPlane) -> None:
    path = "/apis/batch/v1/namespaces/team/jobs"
    # A Job without labels would get those of its pods.
    child = make_job("child", queue=None, suspend=False, labels={"jobset.sigs.k8s.io/jobset-name": "j"})
    child["spec"]["template"]["metadata"]["labels"] = MANAGED["metadata"]["labels"]
    # Outside of queues nothing is refused.
    plain = make_job("plain", queue=None, suspend=False)
    for job in (child, plain):
        plane.rest.create(path, job)
    try:
        dry = f"{path}/child?dryRun=All"
        wait_for(lambda: is_forbidden(lambda: plane.rest.delete(dry)), "the policy in force")
        for options in ORPHANING.values():
            with pytest.raises(RestError, match="cannot be deleted without its pods"):
                plane.rest.delete(dry, options)
            plane.rest.delete(f"{path}/plain?dryRun=All", options)
    finally:
        for name in ("child", "plain"):
            plane.rest.delete(f"{path}/{name}", {"propagationPolicy": "Background"})
