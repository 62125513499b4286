"""A query service for tests: known objects, and an API server that says who may see which namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from admission.answers.sight import EVERYTHING, Sight
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http.query_api import QueryApi
from admission.controller.queries.authorization import Authorization
from admission.controller.queries.callers import Callers, RateLimits, Rights
from admission.controller.queries.service import Decisions, QueryService
from api.http.server import Request, Route
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.kube.client import Body, KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.errors import ServerError
from api.kube.kubeconfig import Endpoint
from queues.reservations.reservations import LoggedDecision
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)


async def see_everything(request: Request, namespaces: Collection[str]) -> Sight:
    """Return what a caller on an open port may see."""
    return EVERYTHING


def open_api(cluster_state: ClusterState, decisions: Decisions | None = None) -> list[Route]:
    """Return the routes of the lists, on a port that is open to all of this machine."""
    clock = FakeClock()
    authorization = Authorization(Reviewer({}), clock)
    service = QueryService(
        cluster_state, clock, Rights(authorization), RateLimits(clock), decisions=decisions
    )
    return QueryApi(service, Callers(authorization, is_open=True)).routes()


class Reviewer(KubeClient):
    """An API server that knows a user by its token, and in which namespaces it may list Workloads."""

    def __init__(self, namespaces: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials()))
        self.namespaces = namespaces
        self.reviews = 0
        self.most_at_once = 0
        # After so many it is down.
        self.answers = 10_000
        self._asked = 0

    async def request(self, method: str, path: str, **given: Any) -> bytes:
        """Answer a review, once others had the time to ask, too."""
        body = given["body"]
        assert isinstance(body, Body)
        review = msgspec.json.decode(body.data)
        self.reviews += 1
        self._asked += 1
        self.most_at_once = max(self.most_at_once, self._asked)
        await asyncio.sleep(0)
        self._asked -= 1
        if self.reviews > self.answers:
            raise ServerError("the server is down", status=500)
        return msgspec.json.encode({**review, "status": self._status(review)})

    def _status(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            # A user may have several tokens: ada, ada.2.
            user = spec["token"].partition(".")[0]
            is_known = user in self.namespaces
            return {"authenticated": is_known, "user": {"username": user} if is_known else None}
        namespace = spec.get("resourceAttributes", {}).get("namespace")
        return {"allowed": namespace in self.namespaces[spec["user"]]}


class Asked:
    """A service over the objects of two teams, `ada` and `bob`, which share a cohort."""

    def __init__(self, *objects: Object, decisions: tuple[LoggedDecision, ...] = ()) -> None:
        self.known = Known(*(objects or two_teams()))
        self.api = Reviewer({"ada": ("ada",), "bob": ("bob",), "admin": ("", "ada", "bob"), "guest": ()})
        self.authorization = Authorization(self.api, self.known.clock)
        self.callers = Callers(self.authorization, is_open=False)

        async def newest(limit: int) -> tuple[LoggedDecision, ...]:
            return decisions[:limit]

        limits = RateLimits(self.known.clock)
        self.service = QueryService(
            self.known.cluster_state, self.known.clock, Rights(self.authorization), limits, decisions=newest
        )


def two_teams() -> tuple[Object, ...]:
    """Return two teams with a queue each in one cohort: ada with three Workloads, bob with one."""
    return (
        namespace_object("ada"),
        namespace_object("bob"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("queue-a", "4", cohortName="all"),
        cluster_queue_object("queue-b", "2", cohortName="all"),
        local_queue_object("lq", "ada", "queue-a"),
        local_queue_object("lq", "bob", "queue-b"),
        *(workload_object(name, "ada", "lq", priority=at) for at, name in enumerate(("a", "b", "c"))),
        workload_object("d", "bob", "lq"),
    )


def running_workload(name: str, namespace: str, queue: str, *, at: int, says: int = 0) -> Object:
    """Return a Workload that holds one CPU, and says how many seconds it runs."""
    since = f"2026-01-01T00:00:0{at}Z"
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    conditions = [
        {"type": type_, "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": since}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": queue, "podSetAssignments": [assignment]}
    annotations = {EXPECTED_RUNTIME_SECONDS: str(says)} if says else {}
    return {
        **workload_object(name, namespace, "lq", annotations=annotations),
        "status": {"admission": admission, "conditions": conditions},
    }
