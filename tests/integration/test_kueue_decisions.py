"""Recorded clusters on the real kube-apiserver: what the controller admits there obeys the laws.

Objects carry their server's own times there, so the recorded decisions themselves need not come out. What
must hold of any: quota is never exceeded, no Workload is passed over for a lower priority, and one that waits
has a reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from admission.simulation.ledger import QuotaLedger, Use, holding_of
from admission.simulation.records import ObjectRecord
from api.objects.queues import ClusterQueueObject, CohortObject
from api.objects.workloads import WorkloadObject
from api.parsing.quantities import amount
from tests import parts
from tests.controlplane import ControlPlane, Rest
from tests.controlplane.definitions import install_definitions
from tests.integration.conftest import Controllers
from tests.integration.manifests import KUEUE, Object, condition, is_true
from tests.integration.recorded import FOLDER, create_case, recorded_cases
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]

# Nothing is written for this long: a Workload that waits has its reason within a second.
QUIET_SECONDS = 3
PATIENCE_SECONDS = 90.0
FAIR = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {}
"""


@dataclass(slots=True)
class Story:
    """The recorded clusters from before the controller's start until nothing is written any more."""

    specs: list[ClusterQueueObject | CohortObject]
    before: list[Object]
    changes: list[Object] = field(default_factory=list)

    @property
    def after(self) -> list[Object]:
        """The Workloads as they are in the end."""
        return list({one["metadata"]["uid"]: one for one in (*self.before, *self.changes)}.values())

    @property
    def newly_admitted(self) -> Iterator[Object]:
        """The Workloads that the controller has given quota, and that hold it."""
        held = {one["metadata"]["uid"] for one in self.before if is_true(one, "QuotaReserved")}
        return (
            one for one in self.after if is_true(one, "QuotaReserved") and one["metadata"]["uid"] not in held
        )


@pytest.mark.parametrize(
    # The API refuses some clusters as a whole, which the core alone can decide upon.
    ("tried", "want_created", "config"),
    [
        pytest.param(200, 100, None, id="by priority and age"),
        pytest.param(60, 25, FAIR, id="with fair sharing"),
    ],
)
def test_the_laws_hold_for_recorded_clusters(
    clean_cluster: ControlPlane, controllers: Controllers, tried: int, want_created: int, config: str | None
) -> None:
    cases = recorded_cases(tried, fair_sharing=config is not None)
    if not cases:
        parts.skip_optional(f"there are no recorded cases in {FOLDER}")
    rest = clean_cluster.rest
    install_definitions(rest)
    prefix = "f" if config else "c"
    created = sum(create_case(rest, case, f"{prefix}{number:03}-") for number, case in enumerate(cases))
    story = Story(specs=read_specs(rest), before=workloads(rest)[0])

    controllers.start(clean_cluster.kubeconfig, config=config).wait_leading()
    watch_until_quiet(rest, story)

    assert created >= want_created
    assert sum(1 for _ in story.newly_admitted) >= created / 2
    if config is not None:
        # Statuses of queues are written after what is decided.
        wait_for(lambda: has_shares(rest), "a weightedShare in the status of a ClusterQueue")
    else:
        assert not has_shares(rest)
    assert list(exceeded_limits(story)) == []
    assert list(passed_over(story)) == []
    assert [one["metadata"]["name"] for one in story.after if waits_without_reason(one)] == []


# --- the run -----------------------------------------------------------------------------------------


def workloads(rest: Rest) -> tuple[list[Object], str]:
    """Return all Workloads, and the version at which a watch goes on."""
    listed = rest.get(f"/apis/{KUEUE}/workloads")
    return listed["items"], listed["metadata"]["resourceVersion"]


def read_specs(rest: Rest) -> list[ClusterQueueObject | CohortObject]:
    """Return all ClusterQueues and Cohorts."""
    return [
        *msgspec.convert(rest.get(f"/apis/{KUEUE}/cohorts")["items"], list[CohortObject]),
        *msgspec.convert(rest.get(f"/apis/{KUEUE}/clusterqueues")["items"], list[ClusterQueueObject]),
    ]


def watch_until_quiet(rest: Rest, story: Story) -> None:
    """Add every version of the Workloads to the story, from its beginning until none comes any more.

    A pause in which a Workload still has no reason for its wait is no end: on a busy machine the lease may be
    lost and won again meanwhile.
    """
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    version = str(max(int(one["metadata"]["resourceVersion"]) for one in story.before))
    while True:
        query = f"watch=1&timeoutSeconds={QUIET_SECONDS}&resourceVersion={version}"
        seen = list(rest.stream(f"/apis/{KUEUE}/workloads?{query}", timeout_seconds=30.0))
        assert all(event["type"] == "MODIFIED" for event in seen), "a Workload was created or deleted"
        if not seen:
            if time.monotonic() > gives_up_at or not any(map(waits_without_reason, story.after)):
                return
            continue
        story.changes += [event["object"] for event in seen]
        version = story.changes[-1]["metadata"]["resourceVersion"]


def has_shares(rest: Rest) -> bool:
    """Return whether statuses of ClusterQueues show the share that fair sharing compares."""
    queues = rest.get(f"/apis/{KUEUE}/clusterqueues")["items"]
    return any("weightedShare" in queue.get("status", {}).get("fairSharing", {}) for queue in queues)


# --- the laws ----------------------------------------------------------------------------------------


def exceeded_limits(story: Story) -> Iterator[Use]:
    """Yield each limit that was exceeded right after a Workload had been given quota under it."""
    ledger = QuotaLedger()
    for spec in story.specs:
        ledger.apply(ObjectRecord(at=0.0, object=spec))
    for workload in decoded(story.before):
        ledger.apply(ObjectRecord(at=0.0, object=workload))
    held = set(ledger.holdings)
    for workload in decoded(story.changes):
        ledger.apply(ObjectRecord(at=0.0, object=workload))
        holding = holding_of(workload)
        if holding is not None and not ledger.holdings.keys() <= held:
            yield from (use for use in ledger.path(holding) if use.is_over)
        held = set(ledger.holdings)


def decoded(workloads: list[Object]) -> list[WorkloadObject]:
    """Return Workloads as the ledger takes them."""
    return msgspec.json.decode(json.dumps(workloads), type=list[WorkloadObject])


def passed_over(story: Story) -> Iterator[str]:
    """Yield each Workload that waits while one of lower priority, in the same queue, got all that it asks.

    Only pairs that need no look at flavors are compared: one pod set each, and plain templates.
    """
    waiting = [
        one
        for one in story.after
        if condition(one, "QuotaReserved").get("reason") == "WaitingForQuota" and is_plain(one)
    ]
    was_waiting = {one["metadata"]["uid"] for one in story.before if not is_true(one, "QuotaReserved")}
    for admitted in filter(is_plain, story.newly_admitted):
        for one in waiting:
            if (
                one["metadata"]["uid"] in was_waiting
                and one["spec"]["queueName"] == admitted["spec"]["queueName"]
                and one["metadata"]["namespace"] == admitted["metadata"]["namespace"]
                and one["spec"].get("priority", 0) > admitted["spec"].get("priority", 0)
                and asks_no_more(one, admitted)
            ):
                yield f"{one['metadata']['name']} waits behind {admitted['metadata']['name']}"


def is_plain(workload: Object) -> bool:
    """Return whether every flavor will do for the Workload's only pod set."""
    pod_sets = workload["spec"]["podSets"]
    spec = pod_sets[0]["template"]["spec"]
    return len(pod_sets) == 1 and "nodeSelector" not in spec and "tolerations" not in spec


def asks_no_more(one: Object, admitted: Object) -> bool:
    """Return whether `one` asks for no more of anything than `admitted` was given."""
    given = admitted["status"]["admission"]["podSetAssignments"][0]
    usage = given.get("resourceUsage") or {}
    pod_set = one["spec"]["podSets"][0]
    (container,) = pod_set["template"]["spec"]["containers"]
    requests = container["resources"].get("requests") or {}
    return pod_set["count"] <= given["count"] and all(
        pod_set["count"] * amount(name, quantity) <= amount(name, usage.get(name, "0"))
        for name, quantity in requests.items()
    )


def waits_without_reason(workload: Object) -> bool:
    """Return whether a Workload waits without a reason."""
    if is_true(workload, "QuotaReserved") or is_true(workload, "Finished"):
        return False
    reserved = condition(workload, "QuotaReserved")
    return not (reserved.get("reason") and reserved.get("message"))
