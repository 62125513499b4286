"""The webhooks as kube-apiserver meets them."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.http.review_answers import MOST_FAULTS
from admission.controller.http.review_process import ReviewProcess
from admission.controller.http.webhooks import Webhooks
from admission.reconcile.job.context import JobSettings
from admission.reconcile.pod.parents import group_name
from api import keys
from api.http.server import HttpServer
from api.jobs.owners.composing import read_pod_sets
from api.jobs.owners.paths import path_text
from api.jobs.owners.table import OWNER_KINDS
from api.jobs.pod_role import role_hash
from api.jobs.stateful_set import StatefulSet
from api.objects.common import WireSelector
from tests.admission.controller.known import (
    Known,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
)
from tests.owners import SAMPLES, UID, OwnerSample
from tests.steps import measured_steps

Object = dict[str, Any]
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/leaderworkerset"


@asynccontextmanager
async def serving(known: Known, *, is_ready: bool = True) -> AsyncIterator[str]:
    """Serve; yield the URL."""
    webhooks = Webhooks(
        known.cluster_state, lambda: is_ready, reviews=ReviewProcess(), conversions=ReviewProcess()
    )
    async with HttpServer(webhooks.routes()) as server:
        yield server.url


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Give the URL of webhooks in a cluster where namespace b has a default queue and classes have one."""
    async with serving(
        Known(
            namespace_object("a"),
            namespace_object("b"),
            local_queue_object("default", "b", "cq"),
            made("WorkloadPriorityClass", "default", value=5),
            settings=ClusterStateSettings(jobs=JobSettings(has_class_defaults=True)),
        )
    ) as url:
        yield url


def review(new: Object | None, old: Object | None = None, **fields: Any) -> Object:
    """Return the review of a creation, of an update where there is an old object, or of a deletion."""
    shown = new or old
    assert shown is not None
    group, _, version = shown["apiVersion"].rpartition("/")
    operation = "DELETE" if new is None else "UPDATE" if old is not None else "CREATE"
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": group, "version": version, "kind": shown["kind"]},
            "operation": operation,
            "namespace": shown["metadata"].get("namespace", ""),
            "name": shown["metadata"].get("name", ""),
            "userInfo": {"username": "tester"},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions"},
            **fields,
        },
    }


async def ask(url: str, path: str, body: object) -> tuple[int, Any]:
    """Return status and answer."""
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as answer:
        return answer.status, await answer.json()


async def response(url: str, path: str, question: Object) -> Object:
    """Return the response in the review that came back."""
    status, answer = await ask(url, path, question)
    assert status == 200, answer
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"].pop("uid") == "review-1"
    found: Object = answer["response"]
    return found


def job(namespace: str = "a", *, suspend: bool | None = False, **given: Any) -> Object:
    """Return a Job; `labels` and `owners` go into its metadata."""
    spec: Object = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    if suspend is not None:
        spec["suspend"] = suspend
    return made("Job", "j", namespace, version="batch/v1", spec=spec, **given)


def patched(obj: Object, answer: Object) -> Object:
    """Return the object with the answer's patch, all of whose steps add."""
    result = copy.deepcopy(obj)
    if "patch" not in answer:
        return result
    assert answer["patchType"] == "JSONPatch"
    for step in json.loads(base64.b64decode(answer["patch"])):
        assert step["op"] == "add"
        *parents, last = (part.replace("~1", "/") for part in step["path"].split("/")[1:])
        target = result
        for parent in parents:
            target = target[parent]
        target[last] = step["value"]
    return result


# --- /mutate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suspend", [False, None], ids=["false", "not set"])
async def test_a_new_job_in_a_queue_is_suspended(url: str, suspend: bool | None) -> None:
    new = job(labels={keys.QUEUE_NAME: "lq", keys.PRIORITY_CLASS: "low"}, suspend=suspend)

    answer = await response(url, "/mutate", review(new))

    assert answer["allowed"]
    want = copy.deepcopy(new)
    want["spec"]["suspend"] = True
    want["metadata"]["annotations"] = {keys.SUBMITTER: "tester"}
    assert patched(new, answer) == want


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({keys.QUEUE_NAME: "lq"}, {}, "tester", id="in a queue"),
        pytest.param({keys.QUEUE_NAME: "lq"}, {keys.SUBMITTER: "chief"}, "tester", id="that names another"),
        pytest.param({}, {keys.SUBMITTER: "chief"}, "tester", id="that could be queued later"),
        pytest.param({}, {"team": "a"}, None, id="in no queue"),
    ],
)
async def test_the_user_of_the_request_is_the_submitter_of_a_new_job(
    labels: dict[str, str], annotations: dict[str, str], want: str | None, url: str
) -> None:
    new = job(labels=labels, annotations=annotations)

    result = patched(new, await response(url, "/mutate", review(new)))

    assert (result["metadata"].get("annotations") or {}).get(keys.SUBMITTER) == want


@pytest.mark.parametrize("after", [{keys.SUBMITTER: "chief"}, {}], ids=["another", "none"])
async def test_a_job_may_be_replaced_by_one_with_another_submitter(url: str, after: dict[str, str]) -> None:
    """A replacement by its manifest has none, and a controller may copy the annotations of an owner."""
    labels = {keys.QUEUE_NAME: "lq"}
    old = job(labels=labels, annotations={keys.SUBMITTER: "tester"}, suspend=True)
    new = job(labels=labels, annotations=after, suspend=True)

    answer = await response(url, "/validate", review(new, old))

    assert answer == {"allowed": True}


@pytest.mark.parametrize("labels", [{}, {"team": "b"}], ids=["no labels", "other labels"])
async def test_a_new_job_gets_the_default_queue_and_class(url: str, labels: dict[str, str]) -> None:
    new = job("b", labels=labels) if labels else job("b")

    result = patched(new, await response(url, "/mutate", review(new)))

    assert result["metadata"]["labels"] == {
        **labels,
        keys.QUEUE_NAME: "default",
        keys.PRIORITY_CLASS: "default",
    }
    assert result["spec"]["suspend"] is True


async def test_the_namespace_is_the_requests_where_the_object_names_none(url: str) -> None:
    new = job("")
    result = patched(new, await response(url, "/mutate", review(new, namespace="b")))

    assert result["metadata"]["labels"][keys.QUEUE_NAME] == "default"


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(review(job()), id="a Job in no queue"),
        pytest.param(
            review(job(labels={keys.QUEUE_NAME: "lq"}), old=job(labels={keys.QUEUE_NAME: "lq"})),
            id="a Job that is there",
        ),
        pytest.param(review(local_queue_object("lq", "team", "cq")), id="another kind"),
        pytest.param(review(None, old=job(labels={keys.QUEUE_NAME: "lq"})), id="a deletion"),
    ],
)
async def test_others_are_left_as_they_are(url: str, question: Object) -> None:
    assert await response(url, "/mutate", question) == {"allowed": True}


@pytest.mark.parametrize("new", [cluster_queue_object("cq"), made("ResourceFlavor", "f", spec={})])
async def test_a_new_queue_or_flavor_gets_its_finalizer_beside_those_of_others(url: str, new: Object) -> None:
    held = {**new, "metadata": {**new["metadata"], "finalizers": ["example.com/mine"]}}

    first = patched(held, await response(url, "/mutate", review(held)))

    assert first["metadata"]["finalizers"] == ["example.com/mine", "kueue.x-k8s.io/resource-in-use"]
    assert await response(url, "/mutate", review(first)) == {"allowed": True}


async def test_a_new_job_in_a_queue_is_suspended_whatever_job_it_names_as_its_owner() -> None:
    known = Known(namespace_object("a"), job(labels={keys.QUEUE_NAME: "lq"}))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    new = job(owners=[owner], labels={keys.QUEUE_NAME: "lq"})

    async with serving(known) as url:
        result = patched(new, await response(url, "/mutate", review(new)))

    assert result["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"labels": {keys.QUEUE_NAME: "lq"}}, [{"name": keys.ELASTIC_GATE}], id="in a queue"),
        # Nothing would ever remove it.
        pytest.param({"labels": {}}, None, id="in no queue"),
    ],
)
async def test_a_new_elastic_job_gets_the_gate(url: str, given: Object, want: list[Object] | None) -> None:
    new = job(annotations={keys.ELASTIC_JOB: "true"}, **given)

    result = patched(new, await response(url, "/mutate", review(new)))

    assert result["spec"]["template"]["spec"].get("schedulingGates") == want


async def test_a_job_is_refused_for_now_while_queues_are_not_known() -> None:
    async with serving(Known(), is_ready=False) as url:
        status, answer = await ask(url, "/mutate", review(job()))

    assert (status, answer["error"]) == (503, "the caches have not synced yet; try again in a moment")


# --- /validate -----------------------------------------------------------------------------------


def flavor(**spec: Any) -> Object:
    """Return a ResourceFlavor."""
    return made("ResourceFlavor", "f", spec=spec)


def workload(**annotations: str) -> Object:
    """Return a Workload."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    spec = {"podSets": [{"name": "main", "count": 1, "template": template}]}
    return made("Workload", "w", "a", spec=spec, annotations=annotations)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(
            cluster_queue_object("cq", "-1"),
            'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota is "-1": must not be negative',
            id="a ClusterQueue",
        ),
        pytest.param(
            made("Cohort", "c", spec={"parentName": "c"}),
            'spec.parentName is "c": a Cohort cannot be its own parent',
            id="a Cohort",
        ),
        pytest.param(
            flavor(nodeLabels={"zone": "a b"}),
            'spec.nodeLabels[zone] is "a b"',
            id="a ResourceFlavor",
        ),
        pytest.param(
            workload(**{keys.ADMISSION_GATED_BY: "soon"}),
            f'metadata.annotations[{keys.ADMISSION_GATED_BY}] is "soon": a gate needs a domain',
            id="a Workload",
        ),
        pytest.param(
            job(labels={keys.QUEUE_NAME: "My Queue"}),
            f'metadata.labels[{keys.QUEUE_NAME}] is "My Queue": must be a DNS subdomain',
            id="a Job",
        ),
    ],
)
async def test_what_is_wrong_is_refused_with_a_sentence(url: str, obj: Object, want: str) -> None:
    answer = await response(url, "/validate", review(obj))

    assert not answer["allowed"]
    # As Kueue's webhooks refuse it; 422 is the answer of the schema.
    assert (answer["status"]["code"], answer["status"]["reason"]) == (403, "Forbidden")
    assert answer["status"]["message"].startswith(want)


@pytest.mark.parametrize(
    "obj",
    [
        cluster_queue_object("cq", "8"),
        made("Cohort", "c"),
        flavor(nodeLabels={"zone": "a"}),
        workload(),
        job(labels={keys.QUEUE_NAME: "lq"}),
        made("LocalQueue", "lq", "a", spec={"clusterQueue": "cq"}),
    ],
    ids=lambda obj: obj["kind"],
)
async def test_what_is_right_is_allowed(url: str, obj: Object) -> None:
    assert await response(url, "/validate", review(obj)) == {"allowed": True}


async def test_a_job_with_thousands_of_unknown_keys_takes_short_steps(url: str) -> None:
    # All annotations of an object together have 256 KiB.
    crowded = job(annotations={f"berth.dev/{n}": "" for n in range(12_000)})
    with measured_steps() as steps:
        answer = await response(url, "/validate", review(crowded))

    assert answer["allowed"]
    assert answer["warnings"][-1] == "11990 more keys of berth.dev/ are unknown"
    assert steps.longest_seconds < 0.05, steps


@pytest.mark.parametrize(
    "template",
    [
        pytest.param([1], id="a template"),
        pytest.param({"metadata": "x"}, id="its metadata"),
        pytest.param({"metadata": {"labels": [None]}}, id="its labels"),
    ],
)
async def test_a_job_with_a_list_or_text_in_place_of_an_object_is_a_400(url: str, template: object) -> None:
    new = job()
    new["spec"]["template"] = template

    status, answer = await ask(url, "/validate", review(new))

    assert status == 400, answer


async def test_of_many_faults_the_first_are_reported_and_the_rest_are_counted(url: str) -> None:
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "No", "resources": []}] * 60}
    crowded = made("ClusterQueue", "cq", spec={"resourceGroups": [group]})

    message = (await response(url, "/validate", review(crowded)))["status"]["message"]

    assert message.count("; ") == MOST_FAULTS
    assert message.endswith(" more faults")


async def test_all_faults_of_an_object_are_reported_at_once(url: str) -> None:
    queue = cluster_queue_object("cq", "-1", fairSharing={"weight": "-1"})

    message = (await response(url, "/validate", review(queue)))["status"]["message"]

    assert "nominalQuota" in message
    assert "fairSharing" in message


async def test_a_forbidden_change_is_refused(url: str) -> None:
    old, new = (job(labels={keys.QUEUE_NAME: name}) for name in ("a", "b"))

    answer = await response(url, "/validate", review(new, old))

    assert answer["status"]["message"].endswith("cannot change while the Job is not suspended; it was 'a'")


async def test_a_queue_cannot_be_taken_off_where_there_is_a_default_one(url: str) -> None:
    old, new = job("b", labels={keys.QUEUE_NAME: "a"}, suspend=True), job("b", suspend=True)

    answer = await response(url, "/validate", review(new, old))

    assert answer["status"]["message"] == (
        f"metadata.labels[{keys.QUEUE_NAME}] is not set: cannot be removed in a namespace with a LocalQueue"
        " named default; it was 'a'"
    )


async def test_it_can_be_where_there_is_none(url: str) -> None:
    old, new = job(labels={keys.QUEUE_NAME: "a"}, suspend=True), job(suspend=True)

    assert (await response(url, "/validate", review(new, old)))["allowed"]


async def test_an_object_that_is_being_deleted_is_allowed(url: str) -> None:
    old = cluster_queue_object("cq", "8")
    new = cluster_queue_object("cq", "-1")
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert (await response(url, "/validate", review(new, old)))["allowed"]


async def test_a_deletion_is_allowed(url: str) -> None:
    assert (await response(url, "/validate", review(None, cluster_queue_object("cq", "-1"))))["allowed"]


async def test_an_unknown_key_is_a_warning(url: str) -> None:
    answer = await response(url, "/validate", review(job(labels={"berth.dev/opportunistik": "true"})))

    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert "berth.dev/opportunistik" in warning
    assert "berth.dev/opportunistic" in warning


# --- both ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="a list"),
        pytest.param({"kind": "AdmissionReview"}, id="no request"),
        pytest.param({"request": {"uid": "1", "operation": "DREAM"}}, id="no operation"),
        pytest.param(
            {
                "request": {
                    "uid": "1",
                    "operation": "CREATE",
                    "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                    "object": 7,
                }
            },
            id="an object that is none",
        ),
    ],
)
async def test_what_is_no_review_is_a_400(url: str, path: str, body: object) -> None:
    status, _ = await ask(url, path, body)

    assert status == 400


@pytest.mark.parametrize(
    "metadata", [pytest.param(7, id="metadata"), pytest.param({"labels": [1]}, id="labels")]
)
async def test_an_update_to_metadata_that_is_no_object_is_a_400(url: str, metadata: object) -> None:
    broken = {**job(), "metadata": metadata}
    status, _ = await ask(
        url, "/validate", review(job(), object=broken, oldObject=broken, operation="UPDATE")
    )

    assert status == 400


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_review_nested_too_deep_is_a_400(url: str, path: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + path, data=b'{"request": ' + b"[" * 99_999) as answer,
    ):
        assert answer.status == 400
        assert "this is no AdmissionReview" in await answer.text()


# --- /mutate for pods ----------------------------------------------------------------------------


def pod(namespace: str = "a", *, spec: Object | None = None, **given: Any) -> Object:
    """Return a pod as its author, or a Deployment, sends it."""
    containers = [{"name": "c", "image": "i"}]
    return made("Pod", "p", namespace, version="v1", spec={"containers": containers, **(spec or {})}, **given)


@pytest.fixture
async def pods_url() -> AsyncIterator[str]:
    """Give the URL of webhooks that hold pods, in a cluster as `url` has it."""
    async with serving(
        Known(
            namespace_object("a"),
            namespace_object("b"),
            local_queue_object("default", "b", "cq"),
            settings=ClusterStateSettings(with_pods=True),
        )
    ) as url:
        yield url


async def test_a_new_pod_in_a_queue_is_gated(pods_url: str) -> None:
    new = pod(labels={keys.QUEUE_NAME: "lq"}, spec={"schedulingGates": [{"name": "example.com/other"}]})

    held = patched(new, await response(pods_url, "/mutate", review(new)))

    assert held["metadata"]["labels"] == {keys.QUEUE_NAME: "lq", keys.MANAGED: "true"}
    assert held["metadata"]["finalizers"] == [keys.POD_FINALIZER]
    gates = [gate["name"] for gate in held["spec"]["schedulingGates"]]
    assert gates == ["example.com/other", keys.ADMISSION_GATE, keys.TOPOLOGY_GATE]


async def test_a_pod_that_is_held_already_is_not_changed(pods_url: str) -> None:
    new = pod(labels={keys.QUEUE_NAME: "lq"})
    held = patched(new, await response(pods_url, "/mutate", review(new)))

    assert "patch" not in await response(pods_url, "/mutate", review(held))


async def test_a_new_pod_of_a_group_gets_its_role(pods_url: str) -> None:
    annotations = {"kept": "yes", keys.POD_GROUP_TOTAL_COUNT: "2"}
    new = pod(labels={keys.QUEUE_NAME: "lq", keys.POD_GROUP_NAME: "g"}, annotations=annotations)

    held = patched(new, await response(pods_url, "/mutate", review(new)))

    assert held["metadata"]["annotations"] == {**annotations, keys.ROLE_HASH: role_hash(new["spec"])}


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param(
            {keys.POD_GROUP_NAME: "g"},
            {},
            f"metadata.annotations[{keys.POD_GROUP_TOTAL_COUNT}] is not set: both the"
            f" '{keys.POD_GROUP_TOTAL_COUNT}' annotation and the '{keys.POD_GROUP_NAME}' label should be set",
            id="a group of unknown size",
        ),
        pytest.param(
            {},
            {keys.POD_GROUP_NAME: "g"},
            f"and the '{keys.POD_GROUP_NAME}' annotation should be set",
            id="also if an annotation names it",
        ),
        pytest.param(
            {},
            {keys.POD_GROUP_TOTAL_COUNT: "2"},
            f"metadata.labels[{keys.POD_GROUP_NAME}] is not set: both the",
            id="a size without a group",
        ),
        pytest.param(
            {keys.POD_GROUP_NAME: "g"},
            {keys.POD_GROUP_TOTAL_COUNT: "0"},
            f'metadata.annotations[{keys.POD_GROUP_TOTAL_COUNT}] is "0": a group needs a whole number',
            id="a size of none",
        ),
        pytest.param(
            {keys.POD_GROUP_NAME: "g"},
            {keys.POD_GROUP_TOTAL_COUNT: "1", keys.PREBUILT_WORKLOAD_NAME: "w"},
            f'metadata.annotations[{keys.PREBUILT_WORKLOAD_NAME}] is "w":'
            " prebuilt workload and pod group should be equal",
            id="a Workload of another name than the group's",
        ),
    ],
)
async def test_a_new_pod_that_could_never_be_admitted_with_its_group_is_refused(
    pods_url: str, labels: dict[str, str], annotations: dict[str, str], want: str
) -> None:
    new = pod(labels={keys.QUEUE_NAME: "lq", **labels}, annotations=annotations)

    answer = await response(pods_url, "/mutate", review(new))

    assert not answer["allowed"]
    assert want in answer["status"]["message"]


async def test_the_group_of_a_pod_in_no_queue_is_not_judged(pods_url: str) -> None:
    answer = await response(pods_url, "/mutate", review(pod(labels={keys.POD_GROUP_NAME: "g"})))

    assert answer["allowed"]


async def test_a_pod_without_a_queue_goes_to_the_default_queue_of_its_namespace(pods_url: str) -> None:
    new = pod("b")

    held = patched(new, await response(pods_url, "/mutate", review(new)))

    assert held["metadata"]["labels"][keys.QUEUE_NAME] == "default"


async def test_a_pod_is_left_as_it_is_where_it_names_no_queue(pods_url: str) -> None:
    assert await response(pods_url, "/mutate", review(pod())) == {"allowed": True}


@pytest.mark.parametrize(
    ("creator", "want"),
    [
        pytest.param("tenant", False, id="not that of a user"),
        pytest.param("system:node:n", True, id="that of its kubelet, which reports a static pod"),
    ],
)
async def test_a_pod_in_a_queue_that_is_created_on_a_node_is_allowed_if_it_is(
    pods_url: str, creator: str, want: bool
) -> None:
    new = pod(labels={keys.QUEUE_NAME: "lq"}, spec={"nodeName": "n"})

    answer = await response(pods_url, "/mutate", review(new, userInfo={"username": creator}))

    assert (answer["allowed"], "patch" in answer) == (want, False)
    if not want:
        assert answer["status"]["message"].startswith('spec.nodeName is "n": a pod in a queue gets its node')


OF_JOB = {"batch.kubernetes.io/controller-uid": "j"}


def owned_pod(namespace: str = "a", *, labels: Object = OF_JOB, **owner: Any) -> Object:
    """Return a pod in a queue of Job j, by default as the Job controller creates it."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": "j",
        "controller": True,
        **owner,
    }
    return pod(namespace, labels={keys.QUEUE_NAME: "lq", **labels}, owners=[reference])


def known_job(namespace: str = "a", **fields: Any) -> Object:
    """Return a Job that selects its pods, as the API server stores it; `status` replaces its own."""
    known = job(namespace, labels={keys.QUEUE_NAME: "lq"})
    status = fields.pop("status", {})
    return {
        **known,
        "status": status,
        "spec": {**known["spec"], "selector": {"matchLabels": OF_JOB}, **fields},
    }


ENDED = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("owner", "new", "want"),
    [
        pytest.param(known_job(), owned_pod(), False, id="not if the Job may have created it"),
        pytest.param(
            known_job(suspend=True), owned_pod(), False, id="not if its start has not been seen yet"
        ),
        pytest.param(known_job(status=ENDED), owned_pod(), True, id="if the Job has finished"),
        pytest.param(known_job(), owned_pod(labels={}), True, id="if the Job does not select it"),
        pytest.param(job(), owned_pod(), True, id="if the Job selects no pods"),
        pytest.param(known_job(), owned_pod(name="other"), True, id="if it gives the Job another name"),
        pytest.param(known_job("b"), owned_pod(), True, id="if the Job is in another namespace"),
        pytest.param(
            known_job(managedBy="example.com/mine"),
            owned_pod(),
            True,
            id="if the Job is that of a controller which may not limit its pods",
        ),
        pytest.param(
            known_job(),
            owned_pod(apiVersion="v1", kind="Node"),
            True,
            id="if it claims to be a static pod, but is on no node",
        ),
    ],
)
async def test_a_pod_that_names_a_job_is_gated(owner: Object, new: Object, want: bool) -> None:
    known = Known(
        namespace_object("a"), namespace_object("b"), owner, settings=ClusterStateSettings(with_pods=True)
    )

    async with serving(known) as url:
        answer = await response(url, "/mutate", review(new))

    assert ("patch" in answer) is want


async def test_a_pod_of_a_job_that_is_being_deleted_is_gated() -> None:
    known = Known(namespace_object("a"), settings=ClusterStateSettings(with_pods=True))
    owner = known_job()
    owner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    known.tell(owner)

    async with serving(known) as url:
        assert "patch" in await response(url, "/mutate", review(owned_pod()))


async def test_a_pod_of_a_job_that_is_not_known_is_refused_for_now(pods_url: str) -> None:
    status, answer = await ask(pods_url, "/mutate", review(owned_pod()))

    assert status == 503
    assert "Job a/j with uid j, is not known; try again" in answer["error"]


async def test_a_pod_that_is_in_no_queue_needs_no_known_job(pods_url: str) -> None:
    new = owned_pod()
    del new["metadata"]["labels"][keys.QUEUE_NAME]

    assert await response(pods_url, "/mutate", review(new)) == {"allowed": True}


@pytest.mark.parametrize(
    ("creator", "want"),
    [
        pytest.param(
            "system:serviceaccount:kube-system:daemon-set-controller", False, id="not its controller's"
        ),
        pytest.param("system:kube-controller-manager", False, id="not that of all controllers"),
        pytest.param("system:serviceaccount:team:daemon-set-controller", True, id="a tenant's"),
        pytest.param("", True, id="that of an unknown user"),
    ],
)
async def test_a_pod_that_names_a_daemon_set_is_gated_if_it_is(
    pods_url: str, creator: str, want: bool
) -> None:
    new = owned_pod(apiVersion="apps/v1", kind="DaemonSet")

    answer = await response(pods_url, "/mutate", review(new, userInfo={"username": creator}))

    assert ("patch" in answer) is want


async def test_pods_are_left_alone_where_they_are_not_managed(url: str) -> None:
    assert "patch" not in await response(url, "/mutate", review(pod(labels={keys.QUEUE_NAME: "lq"})))


@pytest.mark.parametrize(
    "options",
    [
        {"pod_selector": WireSelector(match_labels={"held": "yes"})},
        {"pod_namespace_selector": WireSelector(match_labels={"held": "yes"})},
    ],
    ids=["by its labels", "by those of its namespace"],
)
@pytest.mark.parametrize("is_selected", [True, False])
async def test_only_pods_that_are_selected_are_held(options: dict[str, Any], is_selected: bool) -> None:
    held = {"held": "yes" if is_selected else "no"}
    settings = ClusterStateSettings(with_pods=True, **options)
    async with serving(Known(namespace_object("a", **held), settings=settings)) as url:
        new = pod(labels={keys.QUEUE_NAME: "lq", **held})

        assert ("patch" in await response(url, "/mutate", review(new))) is is_selected


# --- /mutate for what serves ---------------------------------------------------------------------


def serving_object(kind: str = "Deployment", *, replicas: int = 2, **given: Any) -> Object:
    """Return a Deployment or StatefulSet named chat; `template` goes into its template's metadata."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    template = {"metadata": given.pop("template", {}), "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "template": template}
    return made(kind, "chat", "a", version="apps/v1", spec=spec, **given)


CHAT = StatefulSet(namespace="a", name="chat", uid="uid-chat")
CHAT_OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": "uid-chat"}


@pytest.fixture
async def serving_url() -> AsyncIterator[str]:
    """Give the URL of webhooks that hold the pods of Deployments and StatefulSets."""
    kinds = frozenset({"Deployment", "LeaderWorkerSet", "StatefulSet"})
    settings = ClusterStateSettings(with_pods=True, serving_kinds=kinds)
    async with serving(Known(namespace_object("a"), settings=settings)) as url:
        yield url


@pytest.mark.parametrize("old", [None, serving_object()], ids=["new", "changed"])
async def test_a_deployment_passes_its_queue_and_its_annotations_on_to_its_pods(
    serving_url: str, old: Object | None
) -> None:
    annotation = "topology.scheduler/latency-sensitive"
    new = serving_object(
        labels={keys.QUEUE_NAME: "lq", keys.PRIORITY_CLASS: "high", "team": "a"},
        annotations={annotation: "true", "other": "stays"},
        template={"labels": {"app": "chat"}},
    )

    got = patched(new, await response(serving_url, "/mutate", review(new, old)))

    metadata = got["spec"]["template"]["metadata"]
    assert metadata["labels"] == {"app": "chat", keys.QUEUE_NAME: "lq", keys.PRIORITY_CLASS: "high"}
    assert metadata["annotations"] == {annotation: "true", keys.POD_SUSPENDING_PARENT: "deployment"}


@pytest.mark.parametrize(
    ("replicas", "want"), [(3, "3"), (0, "1")], ids=["of three pods", "of none, which may have some later"]
)
async def test_a_stateful_set_makes_one_group_of_its_pods(serving_url: str, replicas: int, want: str) -> None:
    new = serving_object("StatefulSet", replicas=replicas, labels={keys.QUEUE_NAME: "lq"})

    got = patched(new, await response(serving_url, "/mutate", review(new)))

    metadata = got["spec"]["template"]["metadata"]
    assert metadata["labels"] == {keys.QUEUE_NAME: "lq"}
    assert metadata["annotations"][keys.POD_SUSPENDING_PARENT] == "statefulset"
    assert metadata["annotations"][keys.POD_GROUP_TOTAL_COUNT] == want
    assert metadata["annotations"][keys.POD_GROUP_SERVING] == "true"
    assert metadata["annotations"][keys.POD_GROUP_FAST_ADMISSION] == "true"


async def test_a_template_that_names_the_older_group_keeps_it_and_its_pods_do_not_restart(
    serving_url: str,
) -> None:
    labels = {keys.QUEUE_NAME: "lq"}
    older = {keys.POD_GROUP_NAME: CHAT.older_group}
    old = serving_object("StatefulSet", labels=labels, template={"labels": older})
    # As `kubectl replace` sends it, from a manifest that never had the label.
    new = serving_object("StatefulSet", labels=labels)

    got = patched(new, await response(serving_url, "/mutate", review(new, old)))

    assert got["spec"]["template"]["metadata"]["labels"] == labels | older


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, CHAT.group, id="the group of the set"),
        pytest.param({keys.POD_GROUP_NAME: "other"}, CHAT.group, id="no other that its template names"),
        pytest.param(
            {keys.POD_GROUP_NAME: CHAT.older_group}, CHAT.older_group, id="the older one of its template"
        ),
    ],
)
async def test_a_pod_of_a_stateful_set_joins(serving_url: str, labels: dict[str, str], want: str) -> None:
    new = pod(
        labels={keys.QUEUE_NAME: "lq", **labels},
        annotations={keys.POD_SUSPENDING_PARENT: "statefulset"},
        owners=[{**CHAT_OWNER, "controller": True}],
    )

    held = patched(new, await response(serving_url, "/mutate", review(new)))

    metadata = held["metadata"]
    assert metadata["labels"][keys.POD_GROUP_NAME] == want
    assert metadata["annotations"][keys.POD_GROUP_FAST_ADMISSION] == "true"
    assert metadata["annotations"][keys.ROLE_HASH] == "main"


@pytest.mark.parametrize(
    ("kind", "parent"),
    [("StatefulSet", None), ("ReplicaSet", "statefulset")],
    ids=["whose template does not say so", "that another owner controls"],
)
async def test_no_pod_joins_the_group_of_a_stateful_set(
    serving_url: str, kind: str, parent: str | None
) -> None:
    new = pod(
        labels={keys.QUEUE_NAME: "lq"},
        annotations={} if parent is None else {keys.POD_SUSPENDING_PARENT: parent},
        owners=[{**CHAT_OWNER, "kind": kind, "controller": True}],
    )

    held = patched(new, await response(serving_url, "/mutate", review(new)))

    assert keys.POD_GROUP_NAME not in held["metadata"]["labels"]


async def test_a_deployment_leaves_its_queue_only_where_it_is_not_managed(
    serving_url: str, pods_url: str
) -> None:
    change = review(serving_object(), serving_object(labels={keys.QUEUE_NAME: "lq"}))

    answers = [await response(url, "/validate", change) for url in (serving_url, pods_url)]

    assert [one["allowed"] for one in answers] == [False, True]


@pytest.mark.parametrize("parent", [None, "deployment"])
async def test_where_only_deployments_are_queued_a_pod_of_its_own_is_not(parent: str | None) -> None:
    settings = ClusterStateSettings(with_pods=True, jobs=JobSettings(queues_plain_pods=False))
    annotations = {} if parent is None else {keys.POD_SUSPENDING_PARENT: parent}
    new = pod(labels={keys.QUEUE_NAME: "lq"}, annotations=annotations)

    async with serving(Known(namespace_object("a"), settings=settings)) as url:
        answer = await response(url, "/mutate", review(new))

    assert ("patch" in answer) is (parent is not None)


async def test_what_serves_without_a_queue_is_not_changed(serving_url: str) -> None:
    assert "patch" not in await response(serving_url, "/mutate", review(serving_object()))


async def test_a_deployment_is_left_alone_where_it_is_not_managed(pods_url: str) -> None:
    new = serving_object(labels={keys.QUEUE_NAME: "lq"})

    assert "patch" not in await response(pods_url, "/mutate", review(new))


@pytest.mark.parametrize(("count", "want"), [("4", 0), ("2", 1)], ids=["as the pods", "otherwise"])
async def test_a_gpu_count_that_the_pods_contradict_is_a_warning(
    serving_url: str, count: str, want: int
) -> None:
    new = serving_object(labels={keys.QUEUE_NAME: "lq"}, annotations={keys.GPU_COUNT: count})

    warnings = (await response(serving_url, "/mutate", review(new))).get("warnings", [])

    assert len(warnings) == want


async def test_an_absurd_number_of_gpus_keeps_no_owner_of_pods_from_its_queue(serving_url: str) -> None:
    new = serving_object(labels={keys.QUEUE_NAME: "lq"})
    (container,) = new["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": "9" * 5000}}

    assert "patch" in await response(serving_url, "/mutate", review(new))


async def test_a_leader_worker_set_passes_its_queue_on_to_leaders_and_workers(serving_url: str) -> None:
    containers = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    templates = {"size": 3, "leaderTemplate": {"metadata": {}, **containers}, "workerTemplate": containers}
    new = made(
        "LeaderWorkerSet",
        "big",
        "a",
        version="leaderworkerset.x-k8s.io/v1",
        labels={keys.QUEUE_NAME: "lq"},
        spec={"leaderWorkerTemplate": templates},
    )

    got = patched(new, await response(serving_url, "/mutate", review(new)))

    for name in ("leaderTemplate", "workerTemplate"):
        metadata = got["spec"]["leaderWorkerTemplate"][name]["metadata"]
        assert metadata["labels"] == {keys.QUEUE_NAME: "lq"}
        assert metadata["annotations"][keys.POD_SUSPENDING_PARENT] == LEADER_WORKER_SET


@pytest.mark.parametrize(
    ("name", "labels"),
    [("big-1", {}), ("big-1-2", {keys.LEADER_WORKER_GROUP: "1"})],
    ids=["a leader that has no number yet", "a worker"],
)
async def test_a_leader_and_its_workers_are_one_group(
    serving_url: str, name: str, labels: dict[str, str]
) -> None:
    new = pod(
        labels={keys.QUEUE_NAME: "lq", keys.LEADER_WORKER_SET: "big", **labels},
        annotations={keys.LEADER_WORKER_SIZE: "3", keys.POD_SUSPENDING_PARENT: LEADER_WORKER_SET},
    )
    new["metadata"]["name"] = name

    held = patched(new, await response(serving_url, "/mutate", review(new)))

    assert held["metadata"]["labels"][keys.POD_GROUP_NAME] == group_name("LeaderWorkerSet", "big-1")
    assert held["metadata"]["annotations"][keys.POD_GROUP_TOTAL_COUNT] == "3"
    assert held["metadata"]["annotations"][keys.POD_GROUP_SERVING] == "true"


# --- owners of the table -------------------------------------------------------------------------

each_kind = pytest.mark.parametrize("sample", [pytest.param(one, id=one.row.kind) for one in SAMPLES])
JOB_SETS, RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES = (
    next(one for one in SAMPLES if one.row.kind == kind)
    for kind in ("JobSet", "RayCluster", "RayJob", "RayService")
)


def with_owners(*objects: Object) -> Known:
    """Return a state of a cluster in which all kinds of owners are queued, and b has a default queue."""
    settings = ClusterStateSettings(owner_kinds=OWNER_KINDS)
    namespaces = (namespace_object("team"), namespace_object("b"))
    return Known(*namespaces, local_queue_object("default", "b", "cq"), *objects, settings=settings)


# What a kind gets besides, so that a start has a place to write to.
OWN_PATCH = {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}
ADDED = {"TrainJob": {"runtimePatches": [OWN_PATCH]}}


@each_kind
async def test_a_new_owner_in_a_queue_is_suspended(sample: OwnerSample) -> None:
    new = sample.object(suspend=False)

    async with serving(with_owners()) as url:
        answer = await response(url, "/mutate", review(new))

    got, want = patched(new, answer), sample.object(suspend=True)
    want["metadata"] = {**want["metadata"], "annotations": {keys.SUBMITTER: "tester"}}
    assert got == {**want, "spec": {**want["spec"], **ADDED.get(sample.row.kind, {})}}


@each_kind
async def test_a_new_owner_gets_the_default_queue(sample: OwnerSample) -> None:
    new = sample.object(labels={keys.QUEUE_NAME: None}, namespace="b")

    async with serving(with_owners()) as url:
        answer = await response(url, "/mutate", review(new))

    assert patched(new, answer)["metadata"]["labels"] == {keys.QUEUE_NAME: "default"}


@each_kind
async def test_a_new_owner_of_a_kind_that_is_not_queued_is_left_alone(sample: OwnerSample) -> None:
    async with serving(Known(namespace_object("team"))) as url:
        answer = await response(url, "/mutate", review(sample.object(suspend=False)))

    assert "patch" not in answer


def worker(*, uid: str = UID, suspend: bool = False, namespace: str = "team") -> Object:
    """Return a Job that the JobSet controller creates for JobSet j."""
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": uid}
    spec = {"suspend": suspend, **JOB_SETS.spec["replicatedJobs"][1]["template"]["spec"]}
    owners = [{**reference, "controller": True}]
    return made("Job", "j-workers-0", namespace, version="batch/v1", spec=spec, owners=owners)


def admitted_workload() -> Object:
    """Return the admitted Workload of JobSet j."""
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": UID}
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    types = ("QuotaReserved", "Admitted")
    conditions = [{"type": one, "status": "True", "reason": one, "message": ""} for one in types]
    workload = made(
        "Workload",
        "w",
        "team",
        owners=[{**reference, "controller": True}],
        spec={"queueName": "lq", "podSets": [{"name": "driver", "count": 1, "template": template}]},
    )
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "driver", "count": 1}]}
    return {**workload, "status": {"admission": admission, "conditions": conditions}}


@pytest.mark.parametrize(
    ("objects", "child", "want"),
    [
        pytest.param(
            [JOB_SETS.object(), admitted_workload()], worker(), False, id="its JobSet is admitted: it runs"
        ),
        pytest.param([JOB_SETS.object()], worker(), True, id="its JobSet waits: it is suspended"),
        pytest.param([], worker(), True, id="its JobSet is not known yet: it is suspended"),
        pytest.param(
            [JOB_SETS.object(namespace="b")], worker(), False, id="its JobSet is elsewhere: it is no child"
        ),
    ],
)
async def test_a_child_of_a_jobset_runs_with_it(objects: list[Object], child: Object, want: bool) -> None:
    async with serving(with_owners(*objects)) as url:
        answer = await response(url, "/mutate", review(child))

    assert patched(child, answer) == {**child, "spec": {**child["spec"], "suspend": want}}


async def test_a_raycluster_keeps_the_submitter_of_the_rayservice_that_counts_it() -> None:
    """KubeRay copies labels and annotations of the RayService, again whenever it updates in place."""
    submitter: Object = {"annotations": {keys.SUBMITTER: "ada"}}
    service = RAY_SERVICES.object(**submitter)
    service["status"] = {"activeServiceStatus": {"rayClusterName": "j-x7k2p"}}
    reference = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "j", "uid": UID, "controller": True}
    named: Object = {"name": "j-x7k2p", "uid": "cluster-uid", "ownerReferences": [reference]}
    child = RAY_CLUSTERS.object(**named, **submitter)

    async with serving(with_owners(service)) as url:
        answer = await response(url, "/mutate", review(child))
        changed = RAY_CLUSTERS.object(**named, annotations={keys.SUBMITTER: "bob"}, suspend=False)
        validated = await response(url, "/validate", review(changed, child))

    assert patched(child, answer) == child
    assert validated == {"allowed": True}


async def test_a_new_rayjob_for_another_cluster_cannot_name_its_submitter() -> None:
    new = RAY_JOBS.object(annotations={keys.SUBMITTER: "chief"}, suspend=False)
    new["spec"] |= {"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "shared"}}

    async with serving(with_owners()) as url:
        answer = await response(url, "/mutate", review(new))

    want = {**new, "metadata": {**new["metadata"], "annotations": {keys.SUBMITTER: "tester"}}}
    assert patched(new, answer) == want


@each_kind
async def test_an_owner_may_be_replaced_by_its_manifest_without_a_submitter(sample: OwnerSample) -> None:
    old = sample.object(annotations={keys.SUBMITTER: "tester"})

    async with serving(with_owners()) as url:
        answer = await response(url, "/validate", review(sample.object(), old))

    assert answer == {"allowed": True}


async def test_a_job_that_only_names_a_jobset_gets_the_default_queue() -> None:
    child = worker(namespace="b")
    child["spec"]["parallelism"] = child["spec"]["completions"] = 9

    async with serving(with_owners(JOB_SETS.object(namespace="b"))) as url:
        answer = await response(url, "/mutate", review(child))

    assert patched(child, answer)["metadata"]["labels"] == {keys.QUEUE_NAME: "default"}
    assert patched(child, answer)["spec"]["suspend"]


@each_kind
@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({}, {}, "", id="no change"),
        pytest.param(
            {},
            {"labels": {keys.QUEUE_NAME: "other"}},
            "cannot change while the Job is not suspended",
            id="another queue",
        ),
        pytest.param(
            {},
            {"labels": {keys.MAX_EXEC_TIME_SECONDS: "0"}},
            "must be a whole number of seconds above 0",
            id="no time",
        ),
        pytest.param(
            {}, {"annotations": {keys.ELASTIC_JOB: "true"}}, f"[{keys.ELASTIC_JOB}]", id="an elastic one"
        ),
    ],
)
async def test_what_may_not_change_while_an_owner_runs(
    sample: OwnerSample, old: Object, new: Object, want: str
) -> None:
    before, after = (sample.object(suspend=False, **one) for one in (old, new))

    async with serving(with_owners()) as url:
        answer = await response(url, "/validate", review(after, before))

    assert answer["allowed"] is (not want)
    assert want in answer.get("status", {}).get("message", "")


@pytest.mark.parametrize(
    "sample", [pytest.param(one, id=one.row.kind) for one in SAMPLES if one.row.templates is None]
)
async def test_topology_annotations_are_checked_pod_set_by_pod_set(sample: OwnerSample) -> None:
    annotations = {keys.REQUIRED_TOPOLOGY: "rack", keys.PREFERRED_TOPOLOGY: "rack"}
    new = sample.edited(
        sample.object(), lambda one: one["metadata"].setdefault("annotations", {}).update(annotations), -1
    )
    (*_, last) = read_pod_sets(sample.row, new)

    async with serving(with_owners()) as url:
        answer = await response(url, "/validate", review(new))

    path = f"{path_text(last.at)}.metadata.annotations[{keys.PREFERRED_TOPOLOGY}]"
    assert answer["status"]["message"].startswith(path)


@pytest.mark.parametrize("is_on", [True, False], ids=["as the gate says", "its gate is off"])
@pytest.mark.parametrize(
    "sample", [pytest.param(one, id=one.row.kind) for one in SAMPLES if one.row.update_gate]
)
async def test_a_running_ray_object_leaves_its_queue_only_if_changes_are_unchecked(
    sample: OwnerSample, is_on: bool
) -> None:
    gates = frozenset() if is_on else frozenset({sample.row.update_gate})
    settings = ClusterStateSettings(owner_kinds=OWNER_KINDS, jobs=JobSettings(gates_off=gates))
    old, new = sample.object(suspend=False), sample.object(suspend=False, labels={keys.QUEUE_NAME: None})

    async with serving(Known(namespace_object("team"), settings=settings)) as url:
        answer = await response(url, "/validate", review(new, old))

    assert answer["allowed"] is not is_on


@pytest.mark.parametrize("gate", ["LWSImmutableGroupSize", ""])
async def test_groups_change_their_size_only_without_the_gate_that_forbids_it(gate: str) -> None:
    kinds, off = frozenset({"LeaderWorkerSet"}), JobSettings(gates_off=frozenset({gate}))
    settings = ClusterStateSettings(with_pods=True, serving_kinds=kinds, jobs=off)
    old, new = (leader_worker_set(size) for size in (2, 4))

    async with serving(Known(namespace_object("a"), settings=settings)) as url:
        answer = await response(url, "/validate", review(new, old))

    assert answer["allowed"] is bool(gate)


def leader_worker_set(size: int) -> Object:
    """Return a LeaderWorkerSet in a queue with groups of this size."""
    spec = {"leaderWorkerTemplate": {"size": size}}
    labels = {keys.QUEUE_NAME: "lq"}
    return made("LeaderWorkerSet", "l", "a", version="leaderworkerset.x-k8s.io/v1", spec=spec, labels=labels)


def torch_pod(name: str = "j-worker-0", *, uid: str = UID) -> Object:
    """Return a pod in a queue that the training operator creates for PyTorchJob j."""
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": uid}
    resources = {"requests": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    labels = {keys.QUEUE_NAME: "lq"}
    return made(
        "Pod",
        name,
        "team",
        version="v1",
        spec=spec,
        labels=labels,
        owners=[{**reference, "controller": True}],
    )


def torch_workload() -> Object:
    """Return the admitted Workload of PyTorchJob j."""
    workload = admitted_workload()
    workload["metadata"]["ownerReferences"][0] |= {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return workload


@pytest.mark.parametrize(
    ("new", "is_admitted", "want_status", "want_gate"),
    [
        pytest.param(torch_pod(), True, 200, False, id="one that it creates runs with it"),
        pytest.param(torch_pod("mine"), True, 200, True, id="one that only names it is queued itself"),
        pytest.param(torch_pod(), False, 503, False, id="one of it while it waits is refused"),
        pytest.param(torch_pod(uid="other"), True, 503, False, id="one of an unknown one is refused"),
    ],
)
async def test_a_pod_of_a_pytorch_job(
    new: Object, is_admitted: bool, want_status: int, want_gate: bool
) -> None:
    (sample,) = (one for one in SAMPLES if one.row.kind == "PyTorchJob")
    settings = ClusterStateSettings(owner_kinds=OWNER_KINDS, with_pods=True)
    workloads = [torch_workload()] if is_admitted else []
    known = Known(namespace_object("team"), sample.object(), *workloads, settings=settings)

    async with serving(known) as url:
        status, answer = await ask(url, "/mutate", review(new))

    assert status == want_status, answer
    if status == 200:
        assert ("schedulingGates" in patched(new, answer["response"])["spec"]) is want_gate
