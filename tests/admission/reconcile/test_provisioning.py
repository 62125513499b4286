"""What a Workload asks of the cluster's autoscaler, look by look, and what its check says of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Action, Event, Purpose, Write
from admission.reconcile.provisioning.context import ProvisioningContext
from admission.reconcile.workload.context import LifecycleContext
from admission.reconcile.workload.reconcile import reconcile_workload
from api.objects.common import Meta, OwnerReference, WireToleration
from api.parsing.times import to_rfc3339
from api.provisioning import MergePolicy, Outcome, ProvisioningConfig, ProvisioningRequest, RequestedPods
from api.workload import Condition
from tests.admission.world import Object, purposes, read_workload

NOW = 1_800_000_000.0
CONFIG = ProvisioningConfig(name="c", class_name="class", parameters={"one": "1"})
OWNER = OwnerReference(kind="Workload", name="w", uid="u", controller=True)
DRIVER, WORKER = "ppt-w-check-1-driver", "ppt-w-check-1-worker"


def template(cpu: str = "1", gpu: str | None = None, **spec: Any) -> Object:
    """Return a pod template."""
    limits = {} if gpu is None else {"limits": {"nvidia.com/gpu": gpu}}
    return {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, **limits}}], **spec}
    }


def make(check: Object | None = None, *types: str, worker: Object | None = None, **changes: Any) -> Object:
    """Return a Workload of a driver and three workers with quota, and these conditions True."""
    assigned = [
        {"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {}}
        for name, count in changes.pop("counts", {"driver": 1, "worker": 3}).items()
    ]
    entry = {"name": "check", "state": "Pending", "message": "", "lastTransitionTime": to_rfc3339(NOW - 60)}
    return {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 1,
            "annotations": changes.pop("annotations", {}),
        },
        "spec": {
            "queueName": "lq",
            "active": True,
            "podSets": [
                {"name": "driver", "count": 1, "template": template()},
                {"name": "worker", "count": 3, "template": worker or template()},
            ],
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": assigned},
            "conditions": [
                {"type": one, "status": "True", "reason": "r", "lastTransitionTime": to_rfc3339(NOW - 60)}
                for one in ("QuotaReserved", *types)
            ],
            "admissionChecks": [{**entry, **(check or {})}],
            **changes,
        },
    }


def make_request(
    attempt: int = 1, *true: Outcome, message: str = "said", **fields: Any
) -> ProvisioningRequest:
    """Return a request for both pod sets with these conditions."""
    return ProvisioningRequest(
        **{
            "namespace": "team",
            "name": f"w-check-{attempt}",
            "uid": f"r{attempt}",
            "resource_version": "3",
            "class_name": "class",
            "parameters": {"one": "1"},
            "pods": (RequestedPods(template=DRIVER, count=1), RequestedPods(template=WORKER, count=3)),
            "conditions": {one: Condition(type=one, status=True, message=message) for one in true},
            **fields,
        }
    )


def seen(owner: OwnerReference = OWNER) -> Meta:
    """Return a template that is there."""
    return Meta(name="t", namespace="team", uid="t", resource_version="4", owner_references=(owner,))


def context(
    *requests: ProvisioningRequest, config: ProvisioningConfig | None = CONFIG, **fields: Any
) -> ProvisioningContext:
    """Return a context in which no template is there. Flavors lead to zone a."""
    tolerations = (WireToleration(key="gpu", operator="Exists"),)
    return ProvisioningContext(
        **{
            "configs": {"check": config},
            "requests": requests,
            "injection": lambda _: ({"zone": "a"}, tolerations),
            **fields,
        }
    )


def look(workload: Object, given: ProvisioningContext) -> tuple[Action, ...]:
    """Return what the Workload asks for."""
    value, raw = read_workload(workload)
    asked = LifecycleContext(provisioning=given, required_checks=("check",))
    return reconcile_workload(value, raw, asked, now=NOW).actions


def bodies(actions: tuple[Action, ...], purpose: Purpose) -> list[Any]:
    """Return what the writes of this purpose send."""
    writes = (one for one in actions if isinstance(one, Write) and one.purpose is purpose)
    return [msgspec.json.decode(one.body) for one in writes]


THERE: dict[str, Any] = {"template": lambda _: seen()}


# --- requests and templates ------------------------------------------------------------------------


def test_templates_are_created_before_the_request_that_names_them() -> None:
    actions = look(make(), context())

    assert purposes(actions) == ["create-pod-template"] * 2
    driver, worker = bodies(actions, Purpose.CREATE_POD_TEMPLATE)
    assert (driver["metadata"]["name"], worker["metadata"]["name"]) == (DRIVER, WORKER)
    assert driver["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert driver["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert driver["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert driver["template"]["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_a_template_requests_what_its_pods_are_limited_to() -> None:
    actions = look(make(worker=template(gpu="2")), context())

    (container,) = bodies(actions, Purpose.CREATE_POD_TEMPLATE)[1]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "2"}


def test_a_request_names_its_templates_and_takes_parameters_from_settings_and_workload() -> None:
    annotations = {"provreq.kueue.x-k8s.io/two": "2", "example.com/three": "3"}

    actions = look(make(annotations=annotations), context(**THERE))

    (body,) = bodies(actions, Purpose.REQUEST_NODES)
    assert body["metadata"]["name"] == "w-check-1"
    assert body["spec"] == {
        "provisioningClassName": "class",
        "parameters": {"one": "1", "two": "2"},
        "podSets": [
            {"podTemplateRef": {"name": DRIVER}, "count": 1},
            {"podTemplateRef": {"name": WORKER}, "count": 3},
        ],
    }
    (write,) = actions
    assert isinstance(write, Write)
    assert [one.reason for one in write.events] == ["ProvisioningRequestCreated"]


def test_a_request_becomes_the_owner_of_its_templates() -> None:
    actions = look(make(), context(make_request(), **THERE))

    assert purposes(actions) == ["adopt-pod-template"] * 2
    (reference,) = bodies(actions, Purpose.ADOPT_POD_TEMPLATE)[0]["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == (
        "ProvisioningRequest",
        "r1",
        True,
    )


OWNED: dict[str, Any] = {
    "template": lambda _: seen(OwnerReference(kind="ProvisioningRequest", uid="r1", controller=True))
}
FAILED = make_request(1, Outcome.FAILED)
GPU_ALONE = replace(CONFIG, managed_resources=frozenset({"nvidia.com/gpu"}))


@pytest.mark.parametrize(
    ("workload", "given", "want"),
    [
        pytest.param(make(), context(make_request(), **OWNED), [], id="while it waits nothing more is asked"),
        pytest.param(
            make(None, "Evicted"),
            context(make_request()),
            ["delete-provisioning-request"],
            id="an eviction deletes the request",
        ),
        pytest.param(
            make(None, "Finished"),
            context(make_request()),
            ["delete-provisioning-request"],
            id="and so does the end of the Workload",
        ),
        pytest.param(
            make(None, "Evicted"), context(make_request(is_deleted=True)), [], id="which is asked for once"
        ),
        pytest.param(
            make(conditions=[], admission=None),
            context(make_request()),
            [],
            id="lost quota keeps the request",
        ),
        pytest.param(
            make(),
            context(make_request(parameters={"one": "2"}), **THERE),
            ["delete-provisioning-request"],
            id="a request of other settings is deleted before one of that name is made",
        ),
        pytest.param(
            make(),
            context(make_request(class_name="old", is_deleted=True), **THERE),
            [],
            id="and waited for until it is gone",
        ),
        pytest.param(
            make(),
            context(make_request(is_deleted=True), **THERE),
            [],
            id="as is one of the same settings that another program deletes",
        ),
        pytest.param(
            make({"state": "Ready"}, "Admitted"),
            context(**THERE),
            [],
            id="a check that is ready needs no request",
        ),
        pytest.param(
            make({"retryCount": 1}, "Admitted"),
            context(FAILED, **THERE),
            ["sync-checks", "request-nodes"],
            id="a request that failed before this quota is followed by the next",
        ),
        pytest.param(
            make(),
            context(config=None, **THERE),
            ["sync-checks"],
            id="without settings nothing is asked, and the check says so",
        ),
        pytest.param(
            make(worker=template(gpu="1")),
            context(config=GPU_ALONE),
            ["create-pod-template"],
            id="pod sets without a managed resource are left out",
        ),
        pytest.param(make(), context(config=GPU_ALONE), ["sync-checks"], id="without any the check is ready"),
        pytest.param(
            make(counts={"driver": 0, "worker": 0}),
            context(),
            ["sync-checks"],
            id="and so it is if no pod is admitted",
        ),
    ],
)
def test_a_look_asks_for(workload: Object, given: ProvisioningContext, want: list[str]) -> None:
    assert purposes(look(workload, given)) == want


@pytest.mark.parametrize(
    ("policy", "worker", "want"),
    [
        pytest.param(MergePolicy.NONE, template(), [1, 3], id="none"),
        pytest.param(MergePolicy.IDENTICAL_TEMPLATES, template(), [4], id="equal templates"),
        pytest.param(
            MergePolicy.IDENTICAL_TEMPLATES,
            template(hostname="h"),
            [1, 3],
            id="templates that differ somewhere",
        ),
        pytest.param(
            MergePolicy.IDENTICAL_REQUIREMENTS,
            template("1000m", hostname="h"),
            [4],
            id="what counts is equal",
        ),
        pytest.param(MergePolicy.IDENTICAL_REQUIREMENTS, template("2"), [1, 3], id="other requests"),
        pytest.param(
            MergePolicy.IDENTICAL_REQUIREMENTS, template(nodeSelector={"a": "b"}), [1, 3], id="other nodes"
        ),
    ],
)
def test_pod_sets_share_a_template_by_the_policy(
    policy: MergePolicy, worker: Object, want: list[int]
) -> None:
    given = context(config=replace(CONFIG, merge_policy=policy), **THERE)

    (body,) = bodies(look(make(worker=worker), given), Purpose.REQUEST_NODES)

    assert [one["count"] for one in body["spec"]["podSets"]] == want


# --- what the check says ------------------------------------------------------------------------------


def said(actions: tuple[Action, ...]) -> Object | None:
    """Return the entry of the check that is written; None if none is."""
    found = bodies(actions, Purpose.SYNC_CHECKS)
    if not found:
        return None
    (entry,) = found[0]["status"]["admissionChecks"]
    return dict(entry)


READY = {"state": "Ready"}
ETA = {
    Outcome.ACCEPTED: Condition(type="Accepted", status=True),
    Outcome.PROVISIONED: Condition(type="Provisioned", status=False, message="ETA 12:00"),
}


@pytest.mark.parametrize(
    ("workload", "given", "want"),
    [
        pytest.param(make(), context(make_request()), None, id="no answer"),
        pytest.param(
            make(), context(make_request(1, Outcome.ACCEPTED)), None, id="accepted without an estimate"
        ),
        pytest.param(
            make(), context(make_request(conditions=ETA)), ("Pending", "ETA 12:00"), id="an estimate"
        ),
        pytest.param(
            make(), context(make_request(1, Outcome.PROVISIONED)), ("Ready", "said"), id="the nodes are there"
        ),
        pytest.param(make(), context(FAILED), ("Retry", "Retrying after failure: said"), id="failed"),
        pytest.param(
            make({"retryCount": 1}),
            context(FAILED),
            ("Pending", "Retrying after failure: said"),
            id="failed before this quota",
        ),
        pytest.param(
            make({"retryCount": 3}),
            context(make_request(4, Outcome.FAILED)),
            ("Rejected", "said"),
            id="failed once more than the limit",
        ),
        pytest.param(
            make(),
            context(make_request(1, Outcome.BOOKING_EXPIRED)),
            ("Retry", "Retrying after booking expired: said"),
            id="the booking expired before the start",
        ),
        pytest.param(
            make(READY, "Admitted"),
            context(make_request(1, Outcome.BOOKING_EXPIRED)),
            None,
            id="and after the start, which has used it",
        ),
        pytest.param(
            make(READY, "Admitted"),
            context(make_request(1, Outcome.CAPACITY_REVOKED)),
            ("Rejected", "said"),
            id="the nodes of running pods are taken away",
        ),
        pytest.param(make(READY, "Admitted"), context(), None, id="a deleted request changes nothing"),
        pytest.param(
            make({"message": "Error creating"}),
            context(make_request()),
            ("Pending", ""),
            id="an earlier error is forgotten once the request is there",
        ),
        pytest.param(make(), context(config=None), ("Pending", "the check is not active"), id="no settings"),
        pytest.param(
            make(),
            context(config=GPU_ALONE),
            ("Ready", "the provisioning request is not needed"),
            id="no pod that it manages",
        ),
        pytest.param(
            make(),
            context(refused=lambda kind, name: f"{kind} {name} denied" if name == WORKER else None),
            ("Pending", f'Error creating PodTemplate "{WORKER}": PodTemplate {WORKER} denied'),
            id="a template that is refused",
        ),
        pytest.param(
            make(worker=template(nodeSelector={"zone": "b"})),
            context(),
            (
                "Pending",
                f'Error creating PodTemplate "{WORKER}": nodeSelector zone is '
                "'b', but its admission needs 'a';"
                " remove it from the template",
            ),
            id="a template that contradicts its flavor",
        ),
    ],
)
def test_the_check_says(workload: Object, given: ProvisioningContext, want: tuple[str, str] | None) -> None:
    entry = said(look(workload, given))

    assert (None if entry is None else (entry["state"], entry["message"])) == want


@pytest.mark.parametrize(("retries", "want"), [(0, 60), (1, 120), (2, 240)], ids=["first", "second", "third"])
def test_a_retry_waits_longer_each_time(retries: int, want: int) -> None:
    given = context(make_request(retries + 1, Outcome.FAILED))

    entry = said(look(make({"retryCount": retries}), given))

    assert entry is not None
    assert entry["requeueAfterSeconds"] == want


def test_pods_get_the_request_and_node_selectors_from_its_details() -> None:
    config = replace(CONFIG, selector_details={"pool": "Pool", "zone": "Missing"})
    request = make_request(1, Outcome.PROVISIONED, details={"Pool": "p7"})

    entry = said(look(make(), context(request, config=config)))

    assert entry is not None
    update = {
        "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "w-check-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "class",
        },
        "nodeSelector": {"pool": "p7"},
    }
    assert entry["podSetUpdates"] == [{"name": "driver", **update}, {"name": "worker", **update}]


def test_all_pod_sets_that_share_a_template_get_the_request() -> None:
    config = replace(CONFIG, merge_policy=MergePolicy.IDENTICAL_TEMPLATES)
    request = make_request(1, Outcome.PROVISIONED, pods=(RequestedPods(template=DRIVER, count=4),))

    entry = said(look(make(), context(request, config=config)))

    assert entry is not None
    assert [one["name"] for one in entry["podSetUpdates"]] == ["driver", "worker"]


def test_a_change_of_state_is_an_event_with_the_message_of_the_autoscaler() -> None:
    actions = look(make(), context(make_request(1, Outcome.PROVISIONED)))

    (event,) = next(one.events for one in actions if isinstance(one, Write) and one.events)
    assert (event.reason, event.note) == (
        "AdmissionCheckUpdated",
        "Admission check check updated state from Pending to Ready with message: said",
    )


def test_other_steps_of_the_workload_are_not_delayed_by_its_requests() -> None:
    workload = make(None, "DeactivationTarget")

    actions = look(workload, context())

    assert purposes(actions) == ["deactivate", "create-pod-template", "create-pod-template"]
    assert not [one for one in actions if isinstance(one, Event)]
