"""A small cluster as the items of /v1, for tests of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.answers.health import Health, ProblemItem, ReplicaItem, StartsItem
from admission.answers.items import (
    ClusterQueueItem,
    CohortItem,
    DecisionItem,
    GangItem,
    Item,
    Kind,
    Page,
    PromiseItem,
    QuotaItem,
    RackItem,
    WorkloadItem,
)
from admission.answers.what_if import BadQuestionError, ChangedItem, SubmittedItem, WhatIf
from admission.controller.queries.callers import TRUSTED, Caller
from admission.controller.queries.service import QueryService
from api.http.server import HttpError, Request
from api.parsing.times import to_rfc3339
from queues.estimates.start_errors import StartAccuracy

# A moment of 2026, in Unix seconds.
NOW = 1_790_000_000.0
GPU = "nvidia.com/gpu"
# Names that a tenant may choose for what Kubernetes does not check, such as a label's value in a message.
HOSTILE = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">{{ 7 * 7 }}'\""
)


def at(seconds: float) -> str:
    """Return an instant relative to `NOW`."""
    return to_rfc3339(NOW + seconds)


def workload(called: str, **given: Any) -> WorkloadItem:
    """Return a pending Workload of a Job."""
    usual: dict[str, Any] = {
        "namespace": "team-a",
        "name": f"job-{called}-1a2b3",
        "owner_kind": "Job",
        "owner_name": called,
        "local_queue_name": "main",
        "cluster_queue": "team-a",
        "status": "pending",
        "priority": 0,
        "pods": 2,
        "requests": {GPU: "16"},
        "flavors": (),
        "created_at": at(-600),
        "position": None,
        "can_start": True,
        "expected_start": None,
        "earliest_start": None,
        "latest_start": None,
        "expected_after": None,
        "is_promised": False,
        "started_at": None,
        "expected_end": None,
        "finished_at": None,
        "evictions": 0,
        "reason": "WaitingForQuota",
        "message": f"insufficient unused quota for {GPU} in flavor h100, 8 more needed",
    }
    return WorkloadItem(**usual | given)


def running(called: str, **given: Any) -> WorkloadItem:
    """Return a Workload that has run for a quarter of an hour."""
    usual: dict[str, Any] = {"status": "admitted", "flavors": ("h100",), "started_at": at(-900)}
    return workload(called, reason="", message="", **usual | given)


def quota(**given: str) -> QuotaItem:
    """Return a quota of 32 GPUs, of which 20 are used and 4 are lent."""
    usual: dict[str, Any] = {
        "flavor": "h100",
        "resource": GPU,
        "nominal": "32",
        "used": "20",
        "borrowed": "0",
        "lent": "4",
        "over": "0",
        "available": "8",
        "borrowing_limit": None,
        "lending_limit": None,
    }
    return QuotaItem(**usual | given)


def cluster_queue(name: str, cohort: str | None, *quotas: QuotaItem, **given: Any) -> ClusterQueueItem:
    """Return an active ClusterQueue."""
    usual: dict[str, Any] = {
        "name": name,
        "cohort": cohort,
        "strategy": "BestEffortFIFO",
        "policy": "default",
        "is_active": True,
        "reason": "Ready",
        "message": "Can admit new workloads",
        "pending": 3,
        "inadmissible": 1,
        "reserving": 2,
        "admitted": 2,
        "weighted_share": 0,
        "quotas": quotas,
        "flavors_reservation": {},
        "flavors_usage": {},
        "quotas_in_force": (),
        "reservations": (),
    }
    return ClusterQueueItem(**usual | given)


def cohort(name: str, parent: str | None, *quotas: QuotaItem) -> CohortItem:
    """Return a Cohort."""
    return CohortItem(
        name=name, parent=parent, cluster_queues=2, cohorts=0, admitted=4, weighted_share=0, quotas=quotas
    )


def rack(number: int, *, free: int, flavor: str = "h100") -> RackItem:
    """Return a rack of four nodes with eight GPUs each."""
    return RackItem(
        flavor=flavor,
        level="example.com/rack",
        domain=f"{flavor}-rack-{number}",
        nodes=4,
        free_nodes=free // 8,
        gpus=32,
        free_gpus=free,
        largest_gangs=tuple(GangItem(gpus_per_pod=size, pods=free // size) for size in (1, 2, 4, 8)),
    )


def promise(name: str, *, starts_in: float, **given: Any) -> PromiseItem:
    """Return a promise that was made a minute ago."""
    usual: dict[str, Any] = {
        "namespace": "team-a",
        "name": f"job-{name}-1a2b3",
        "cluster_queue": "team-a",
        "start_at": at(starts_in),
        "first_start_at": at(starts_in),
        "made_at": at(-60),
        "domain": "h100-rack-1",
        "borrows": False,
        "moves": 0,
        "cause": "",
    }
    return PromiseItem(**usual | given)


def decision(seconds_ago: float, what: str) -> DecisionItem:
    """Return an entry of the decision log."""
    return DecisionItem(
        at=at(-seconds_ago),
        by="berth-0",
        fence=3,
        cycle=round(seconds_ago),
        namespace="team-a",
        name=f"job-{round(seconds_ago)}",
        decision=what,
        reason="",
        message="fits in flavor h100",
        start_at=None,
    )


WORKLOADS = (
    running("train", expected_end=at(1800)),
    running("tune", owner_name=HOSTILE, started_at=at(-60), expected_end=at(700)),
    workload("next", position=1, expected_start=at(700), expected_end=at(4000), is_promised=True),
    workload("later", position=2, expected_start=at(1800), earliest_start=at(700), latest_start=at(4000)),
    workload("begun", status="quotaReserved", message=""),
    workload("never", can_start=False, message=HOSTILE, reason="ExceedsQuota"),
)
PLAIN: Mapping[Kind, Sequence[Item]] = {
    Kind.WORKLOADS: WORKLOADS,
    Kind.CLUSTER_QUEUES: (
        cluster_queue("team-a", "research", quota()),
        cluster_queue("team-b", "research", quota(used="36", borrowed="4", lent="0", available="0")),
        cluster_queue("alone", None, quota(used="34", over="2", lent="0", available="-2")),
    ),
    Kind.COHORTS: (cohort("research", None, quota(nominal="64", used="56", lent="0", available="8")),),
    Kind.RACKS: tuple(rack(number, free=free) for number, free in enumerate((0, 10, 26))),
    Kind.PROMISES: (promise("next", starts_in=700, moves=1, cause="Overrun", first_start_at=at(600)),),
    Kind.DECISIONS: tuple(decision(7 * n, "Admit" if n % 3 else "Evict") for n in range(30)),
}


@dataclass
class Answering(QueryService):
    """A query service whose lists are given."""

    items: Mapping[Kind, Sequence[Item]] = field(default_factory=lambda: dict(PLAIN))
    hidden: int = 0
    continue_: str = ""
    asked: list[tuple[Kind, Mapping[str, str]]] = field(default_factory=list)
    explained: int = 0
    questions: list[object] = field(default_factory=list)

    def start_accuracy(self) -> StartAccuracy:
        """Return how good 100 expected starts were."""
        return StartAccuracy(inside=79, early=12, late=9)

    async def health(self, caller: Caller) -> Health:
        """Return the health that is given."""
        return HEALTH

    async def list(self, caller: Caller, kind: Kind, query: Mapping[str, str]) -> Page[Any]:
        """Return all items that are given of this kind."""
        self.asked.append((kind, query))
        found = tuple(self.items.get(kind, ()))
        return Page(items=found, total=len(found), hidden=self.hidden, continue_=self.continue_)

    async def get(self, caller: Caller, kind: Kind, name: str, namespace: str = "") -> Item:
        """Return the item of this name. Raises HttpError."""
        found = [one for one in self.items.get(kind, ()) if getattr(one, "name", "") == name]
        if not found:
            raise HttpError(404, f"there is no {kind.value} {name}")
        return found[0]

    async def explain(
        self, caller: Caller, namespace: str, name: str, *, with_help: bool = False
    ) -> dict[str, Any]:
        """Return the explanation that is given, of the Workload of this name or of the Job's."""
        self.explained += 1
        return {**EXPLANATION, "name": "job-next-1a2b3" if name == "next" else name}

    async def what_if(self, caller: Caller, body: bytes | bytearray) -> WhatIf:
        """Return that one Workload would start and another be evicted for it."""
        self.questions.append(json.loads(body))
        return ANSWER

    async def what_if_of(self, caller: Caller, namespace: str, read: Callable[[], bytes]) -> WhatIf:
        """Return the same. Raises HttpError."""
        try:
            return await self.what_if(caller, read())
        except BadQuestionError as error:
            raise HttpError(400, str(error)) from error


HEALTH = Health(
    replica=ReplicaItem(name="berth-0", role="leader", version="9.9", is_store_up=True),
    starts=StartsItem(inside=79, early=12, late=9),
    problems=(
        ProblemItem(
            kind="ClusterQueue",
            namespace="",
            name="team-b",
            message="references missing ResourceFlavor(s): a",
        ),
        ProblemItem(kind="Workload", namespace="team-a", name="odd", message=HOSTILE),
    ),
    more=2,
)
EXPLANATION = {
    "verdict": "It is at position 1 and is promised to start in 11 min; it lacks 8 of 16 GPUs.",
    "runTime": {"summary": "expected to run: 50 min by what earlier runs took"},
    "lacks": [{"resource": GPU, "flavor": "h100"}],
    "heldBy": [
        {
            "namespace": "team-a",
            "name": "job-train-1a2b3",
            "amount": "8",
            "expectedEnd": at(1800),
            "keptBy": "preemption.withinClusterQueue: Never",
        }
    ],
    "heldByHidden": {"count": 3, "amount": "24"},
    "help": [{"change": "8 GPUs less", "startsAt": at(0)}],
}
ANSWER = WhatIf(
    workloads=(
        SubmittedItem(
            namespace="team-a",
            name="job-new-1a2b3",
            owner_kind="Job",
            owner_name="new",
            starts_now=False,
            starts_at=at(300),
            earliest_start=at(60),
            latest_start=at(900),
            is_promised=False,
            reason="WaitingForQuota",
            message=HOSTILE,
            held_by=("team-a/job-train-1a2b3 (8)",),
        ),
    ),
    others=(
        ChangedItem(namespace="team-a", name="job-old", is_evicted=True, started_at=None, starts_at=None),
    ),
    hidden_evicted=0,
    hidden_moved=2,
    notes=("a Secret was left out",),
)


async def trusted(request: Request) -> Caller:
    """Return the caller of a port that is open to this machine."""
    return TRUSTED
