"""Screens: what each asks the query service, and what its template shows.

A screen shows what `/v1` answers to the same caller. It computes where things are drawn and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from admission.answers.items import ClusterQueueItem, Kind, Page, WorkloadItem
from admission.controller.page.charts import decision_chart, promise_chart
from admission.controller.page.manifests import form_of, question_of
from admission.controller.page.queue_screen import queue_rows
from admission.controller.page.quota_tree import quota_lines, quota_trees
from admission.controller.page.rack_map import flavor_maps
from admission.controller.page.workload_screen import moments, mood, time_line
from admission.controller.queries.callers import Caller
from admission.controller.queries.service import QueryService
from api.http.server import HttpError, Request

# What may still run, which is what people look for first.
_UNFINISHED = "pending,quotaReserved,admitted,deactivated"
_STATUSES = (
    ("", "not finished"),
    ("pending", "waiting"),
    ("quotaReserved,admitted", "running"),
    ("deactivated", "deactivated"),
    ("finished", "finished"),
)
# As many rows as are of use on a screen; the next page shows more.
_ROWS = 100
_CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a screen. `now` is in Unix seconds."""

    service: QueryService
    caller: Caller
    request: Request
    now: float

    async def list(self, kind: Kind, **query: str) -> Page[Any]:
        """Return a page of a list."""
        return await self.service.list(self.caller, kind, query)

    async def page(self, kind: Kind, **query: str) -> tuple[Page[Any], Mapping[str, str]]:
        """Return the page of a list that the request asks for, and links to the first and the next one."""
        found = await self.list(kind, limit=str(_ROWS), **query, **self._place())
        own = {name: value for name, value in self.request.query.items() if name != _CONTINUE}
        links = {}
        if self._place():
            links["first"] = f"?{urlencode(own)}"
        if found.continue_:
            links["next"] = f"?{urlencode({**own, _CONTINUE: found.continue_})}"
        return found, links

    def _place(self) -> dict[str, str]:
        place = self.request.query.get(_CONTINUE)
        return {_CONTINUE: place} if place else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a template shows. `current` is the entry of the navigation, `is_live` whether changes come in."""

    template: str
    title: str
    current: str
    values: Mapping[str, object] = field(default_factory=dict)
    is_live: bool = True
    status: int = 200


ScreenOf = Callable[[Asked], Awaitable[Shown]]


async def work(asked: Asked) -> Shown:
    """Return the Workloads that the caller may see, by queue and position."""
    query = asked.request.query
    namespace = {"namespace": query["namespace"]} if query.get("namespace") else {}
    page, links = await asked.page(
        Kind.WORKLOADS, status=query.get("status") or _UNFINISHED, sort="position", **namespace
    )
    return Shown(
        template="work.html",
        title="Work",
        current="work",
        values={"page": page, "links": links, "statuses": _STATUSES},
    )


async def workload(asked: Asked) -> Shown:
    """Return one Workload: what becomes of it, who holds what it lacks, what helps, and its time line."""
    namespace, name = asked.request.parameters["namespace"], asked.request.parameters["name"]
    # What would help is tried, which takes time: a page that refreshes itself keeps the first answer.
    is_refresh = "hx-request" in asked.request.headers
    why = None if is_refresh else await asked.service.explain(asked.caller, namespace, name, with_help=True)
    # A Job's name will do: its Workload's contains a hash.
    name = name if why is None else str(why["name"])
    one = await asked.service.get(asked.caller, Kind.WORKLOADS, name, namespace)
    assert isinstance(one, WorkloadItem), "as asked"
    promised = (await asked.list(Kind.PROMISES, namespace=namespace, name=name)).items
    return Shown(
        template="workload.html",
        title=f"{namespace}/{one.owner_name or name}",
        current="work",
        values={
            "one": one,
            "mood": mood(one),
            "why": why,
            "line": time_line(one, now=asked.now),
            "moments": moments(one, promised[0] if promised else None),
        },
    )


async def queues(asked: Asked) -> Shown:
    """Return the ClusterQueues with their quota."""
    page, links = await asked.page(Kind.CLUSTER_QUEUES)
    rows = [(one, quota_lines(one.quotas)) for one in page.items]
    return Shown(
        template="queues.html",
        title="Queues",
        current="queues",
        values={"page": page, "links": links, "rows": rows},
    )


async def queue(asked: Asked) -> Shown:
    """Return one ClusterQueue: what runs, and what waits in order."""
    name = asked.request.parameters["name"]
    found = await asked.service.get(asked.caller, Kind.CLUSTER_QUEUES, name)
    assert isinstance(found, ClusterQueueItem), "as asked"
    page, links = await asked.page(Kind.WORKLOADS, clusterQueue=name, status=_UNFINISHED, sort="position")
    # Those that run have no position, and come before all that have one.
    ordered = sorted(page.items, key=lambda one: one.started_at is None)
    drawing, rows = queue_rows(ordered, now=asked.now)
    return Shown(
        template="queue.html",
        title=name,
        current="queues",
        values={
            "queue": found,
            "lines": quota_lines(found.quotas),
            "drawing": drawing,
            "rows": rows,
            "links": links,
            "hidden": page.hidden,
        },
    )


async def cohorts(asked: Asked) -> Shown:
    """Return the trees of Cohorts and ClusterQueues."""
    trees = quota_trees((await asked.list(Kind.COHORTS)).items, (await asked.list(Kind.CLUSTER_QUEUES)).items)
    return Shown(template="cohorts.html", title="Quota", current="cohorts", values={"trees": trees})


async def racks(asked: Asked) -> Shown:
    """Return what is free in each topology domain."""
    maps = flavor_maps((await asked.list(Kind.RACKS)).items)
    return Shown(template="racks.html", title="Racks", current="racks", values={"maps": maps})


async def calendar(asked: Asked) -> Shown:
    """Return the promised starts, the next one first, and the quota windows and reservations in force."""
    page, links = await asked.page(Kind.PROMISES, sort="startAt")
    queues = (await asked.list(Kind.CLUSTER_QUEUES)).items
    return Shown(
        template="calendar.html",
        title="Calendar",
        current="calendar",
        values={
            "page": page,
            "links": links,
            "chart": promise_chart(page.items, now=asked.now),
            "accuracy": asked.service.start_accuracy(),
            "windows": [(queue.name, one) for queue in queues for one in queue.quotas_in_force],
            "reservations": [(queue.name, one) for queue in queues for one in queue.reservations],
        },
    )


async def decisions(asked: Asked) -> Shown:
    """Return the last decisions."""
    page, links = await asked.page(Kind.DECISIONS)
    return Shown(
        template="decisions.html",
        title="Decisions",
        current="decisions",
        values={"page": page, "links": links, "chart": decision_chart(page.items, now=asked.now)},
    )


async def health(asked: Asked) -> Shown:
    """Return whether the replica works, and which objects are of no use as they are."""
    found = await asked.service.health(asked.caller)
    return Shown(
        template="health.html",
        title="Health",
        current="health",
        values={
            "replica": found.replica,
            "starts": found.starts,
            "problems": found.problems,
            "more": found.more,
        },
    )


async def what_if(asked: Asked) -> Shown:
    """Return the form for manifests, and what would happen if they were applied; nothing is applied."""
    form = form_of(asked.request.body)
    result, problem, status = None, "", 200
    if asked.request.method == "POST":
        try:
            namespace = form.get("namespace") or "default"
            result = await asked.service.what_if_of(
                asked.caller, namespace, lambda: question_of(form.get("manifests", ""), namespace)
            )
        # Beside the form, so that what was pasted is not lost.
        except HttpError as error:
            problem, status = error.message, error.status
    return Shown(
        template="what_if.html",
        title="What if",
        current="what-if",
        values={"form": form, "result": result, "problem": problem},
        is_live=False,
        status=status,
    )
