"""The query service: what `/v1`, the page and assistants ask, with the rights of each caller.

All of them ask this one object, so the same question has the same answer and the same words everywhere.

    page = await service.list(caller, Kind.WORKLOADS, {"status": "pending", "sort": "position"})
    item = await service.get(caller, Kind.CLUSTER_QUEUES, "team-a")
    used = await service.usage(caller, {"by": "user", "since": "30d"})
    async for event in await service.watch(caller, Kind.WORKLOADS, {"status": "pending"}): ...
    body = await service.explain(caller, "team-a", "train")
    answer = await service.what_if(caller, b'{"objects": [...], "namespace": "team-a"}')

`caller` comes from `Callers.caller(request)`. Answers are the structs of `admission.answers`, and the
JSON of /v1 is what `msgspec.json.encode` makes of them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from admission.answers.explaining.answer import as_seen, find_workload, whole_answer
from admission.answers.explaining.body import to_body
from admission.answers.explaining.trials import found_remedies
from admission.answers.health import Health, ReplicaItem, health
from admission.answers.items import Item, Kind, Page, WorkloadItem
from admission.answers.lists import Lists, choices_of, decision_page, item_type
from admission.answers.promise_items import decision_item, promise_item
from admission.answers.selection import BadSelectionError, Selection, read_selection
from admission.answers.sight import Sight
from admission.answers.usage import Usage, UsageQuery, read_usage_query, usage
from admission.answers.what_if import (
    Asker,
    BadQuestionError,
    WhatIf,
    namespaces_of,
    read_question,
    what_if,
)
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.queries.callers import MOST_NAMESPACES, Caller, RateLimits, Rights
from admission.controller.queries.copies import Copies, CopyFailedError, ask_in_copy
from admission.controller.queries.standing_copy import StandingCopy
from admission.controller.queries.views import Views
from admission.controller.queries.watching import View
from admission.controller.runtime.clock import Clock
from admission.engine.engine import Engine
from api.http.server import HttpError
from queues.estimates.start_errors import StartAccuracy
from queues.reservations.reservations import LOG_LENGTH, LoggedDecision, ReservationError

# Returns up to that many of the last decisions, the newest first.
Decisions = Callable[[int], Awaitable[tuple[LoggedDecision, ...]]]
# A quarter of the connections of a port.
MOST_WATCHERS = 64
# Then the client comes back, as EventSource does by itself, and its token is reviewed again.
LONGEST_WATCH_SECONDS = 1800.0
# From so many Workloads on, lists may show the state of a moment ago.
LARGE_CLUSTER = 2_000
# How long changes that would help are tried.
TRIAL_SECONDS = 3.0
# The lists whose items belong to a namespace.
NAMESPACED = frozenset({Kind.WORKLOADS, Kind.LOCAL_QUEUES, Kind.PROMISES, Kind.DECISIONS})
# The lists whose items have a name of their own.
BY_NAME = frozenset({Kind.WORKLOADS, Kind.CLUSTER_QUEUES, Kind.LOCAL_QUEUES, Kind.COHORTS, Kind.PROMISES})

# Where no process describes itself, as in tests.
_UNNAMED = ReplicaItem(name="", role="standalone", version="")


class QueryService:
    """Answers queries. Raises HttpError with a status and one sentence wherever it does not.

    400 for a query that cannot be read, 403 without the rights, 404 for what does not exist or may not be
    seen, 429 for a caller that asks too often, 503 while a part that is needed does not answer. `decisions`
    None: this replica has no decision log. `replica` describes the replica that answers.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        clock: Clock,
        rights: Rights,
        limits: RateLimits,
        *,
        decisions: Decisions | None,
        replica: Callable[[], ReplicaItem] = lambda: _UNNAMED,
    ) -> None:
        self._cluster_state = cluster_state
        self._clock = clock
        self._rights = rights
        self.limits = limits
        self._decisions = decisions
        self._replica = replica
        # Apart from each other, so that a list never waits for a question that takes long.
        self._logs, self._trying = Copies(), Copies()
        self._listing = StandingCopy(
            lambda: Lists(self._engine),
            Lists.prepare,
            clock,
            generation=lambda: self._generation,
            is_large=lambda: self._engine.workloads.count() >= LARGE_CLUSTER,
        )
        self._views = Views()
        self._watchers = 0
        # Counts changes, so that a view is not computed again for nothing.
        self._generation = 0
        observers = cluster_state.observers
        for observed in (observers.workload_changed, observers.spec_changed, observers.spec_gone):
            observed.append(self._note_change)

    def behind(self) -> int:
        """Return how many of the last changes a list may not show yet: 0 but in a large cluster."""
        return self._generation - self._listing.as_of()

    def close(self) -> None:
        """End what is kept to answer lists."""
        self._listing.close()

    @property
    def _engine(self) -> Engine:
        return self._cluster_state.engine

    async def list(self, caller: Caller, kind: Kind, query: Mapping[str, str]) -> Page[Any]:
        """Return a page of a list. `query` has filters, `sort`, `limit` and `continue` as texts, as in a URL.

        The filters and orders of each list are in `admission.answers.lists`. `Page.items` are of the class
        `item_type(kind)`.
        """
        self.limits.take_read(caller)
        selection = _selection(kind, query)
        sight = await self._sight(caller, selection)
        return await self._page(kind, sight, selection)

    async def get(self, caller: Caller, kind: Kind, name: str, namespace: str = "") -> Item:
        """Return one item by name, with its namespace where the kind has one. A rack's name is its domain."""
        self.limits.take_read(caller)
        named = {"domain" if kind is Kind.RACKS else "name": name}
        where = {"namespace": namespace} if kind in NAMESPACED else {}
        selection = Selection(filters={**named, **where}, limit=1)
        found = await self._page(kind, await self._sight(caller, selection), selection)
        if not found.items:
            # The same words for what may not be seen: they must not tell whether it exists.
            raise HttpError(404, f"there is no {kind.value} {f'{namespace}/{name}' if where else name}")
        item: Item = found.items[0]
        return item

    async def health(self, caller: Caller) -> Health:
        """Return whether this replica works, and what is wrong with objects that the caller may see."""
        self.limits.take_read(caller)
        sight = await self._rights.require(caller, self._engine.queues.namespaces(), named="")
        return health(self._engine, self._replica(), sight)

    def start_accuracy(self) -> StartAccuracy:
        """Return how good expected starts were since this replica decides: mere counts."""
        return self._engine.promises.start_accuracy()

    async def usage(self, caller: Caller, query: Mapping[str, str]) -> Usage:
        """Return what the Workloads that the caller may see have used, as `read_usage_query` reads it."""
        self.limits.take_read(caller)
        now = self._clock.now()
        with _errors():
            asked = read_usage_query(query, now=now)
            named = query.get("namespace", "")
            known = asked.namespaces or self._engine.queues.namespaces()
            sight = await self._rights.require(caller, known, named=named)
            raw = await self._listing.ask(partial(_encoded_usage, asked, sight, now))
        return msgspec.msgpack.decode(raw, type=Usage)

    async def watch(
        self, caller: Caller, kind: Kind, query: Mapping[str, str], last_event_id: str = ""
    ) -> AsyncIterator[bytes]:
        """Return the page that `list` returns as server-sent events that keep it up to date (`watching`).

        The stream ends when the rights of the caller change, and after half an hour, so that the client
        asks again.
        """
        self.limits.take_read(caller)
        self.limits.require_room_for_watch(caller)
        if self._watchers >= MOST_WATCHERS:
            raise HttpError(503, "too many watches; list instead", headers={"Retry-After": "10"})
        selection = _selection(kind, query)
        sight = await self._sight(caller, selection)
        return self._watched(kind, caller, sight, selection, last_event_id)

    def _new_view(self, kind: Kind, sight: Sight, selection: Selection) -> View:
        return View(
            lambda: self._page(kind, sight, selection),
            choices_of(kind).identity if kind is not Kind.WORKLOADS else _name_of,
            self._clock,
            generation=self._listing.as_of,
        )

    async def _watched(
        self, kind: Kind, caller: Caller, sight: Sight, selection: Selection, last_event_id: str
    ) -> AsyncIterator[bytes]:
        key = msgspec.json.encode((kind, sight.sees_all, sorted(sight.namespaces), _query(selection)))
        view = self._views.view(key, lambda: self._new_view(kind, sight, selection))
        ends_at = self._clock.monotonic() + LONGEST_WATCH_SECONDS
        self._watchers += 1
        try:
            with self.limits.watch(caller), self._views.watched(key, view):
                async for chunk in view.events(last_event_id):
                    yield chunk
                    is_over = self._clock.monotonic() >= ends_at
                    if is_over or await self._sight(caller, selection) != sight:
                        return
        # The stream has begun: the client sees its end and asks again, and then gets the sentence.
        except HttpError:
            return
        finally:
            self._watchers -= 1

    def _note_change(self, *_: object) -> None:
        self._generation += 1

    async def explain(
        self, caller: Caller, namespace: str, name: str, *, with_help: bool = False
    ) -> dict[str, Any]:
        """Return what becomes of a Workload or of a Job's Workload: the JSON of `berth explain -o json`.

        Beside it, `promise` is its promised start. `with_help`: what would help is tried, for some
        seconds.
        """
        with self.limits.trial(caller):
            await self._rights.require(caller, {namespace}, named=namespace)
            sight = await self._widest_sight(caller, {namespace})
            engine, now = self._engine, self._clock.now()
            trial_seconds = TRIAL_SECONDS if with_help else 0.0
            raw = await _ask(
                self._trying,
                lambda: msgspec.json.encode(
                    _explanation(engine, (namespace, name), sight, now=now, trial_seconds=trial_seconds)
                ),
            )
        found: dict[str, Any] = msgspec.json.decode(raw)
        if not found:
            raise HttpError(404, f"namespace {namespace} has no Workload {name}, nor one of a Job {name}")
        return found

    async def what_if(self, caller: Caller, body: bytes | bytearray) -> WhatIf:
        """Return what would happen if objects were submitted, changed or removed: see `Question`.

        The caller needs the right for each namespace that the question names.
        """
        with self.limits.trial(caller):
            return await self._what_if(caller, body)

    async def what_if_of(self, caller: Caller, namespace: str, read: Callable[[], bytes]) -> WhatIf:
        """Return the same of a body for this namespace that takes long to read.

        It is read in a copy, once the caller may ask. `read` raises BadQuestionError.
        """
        with self.limits.trial(caller):
            await self._rights.require(caller, {namespace}, named=namespace)
            return await self._what_if(caller, await _ask(self._trying, read))

    async def _what_if(self, caller: Caller, body: bytes | bytearray) -> WhatIf:
        try:
            question = read_question(body)
        except BadQuestionError as error:
            raise HttpError(400, str(error)) from error
        named = namespaces_of(question)
        await self._rights.require_all(caller, named)
        sight = await self._widest_sight(caller, named)
        asker = Asker(now=self._clock.now(), sight=sight, context=self._cluster_state.job_context)
        engine = self._engine
        raw = await _ask(
            self._trying, lambda: msgspec.msgpack.encode(what_if(engine, question, ask_in_copy, asker))
        )
        return msgspec.msgpack.decode(raw, type=WhatIf)

    async def _widest_sight(self, caller: Caller, named: Collection[str]) -> Sight:
        """Return what the caller may see of all Workloads, or in the named namespaces if all are too many."""
        known = self._engine.queues.namespaces()
        return await self._rights.sight(caller, known if len(known) <= MOST_NAMESPACES else named)

    async def _sight(self, caller: Caller, selection: Selection) -> Sight:
        named = selection.filters.get("namespace")
        known = named.split(",") if named is not None else self._engine.queues.namespaces()
        return await self._rights.require(caller, known, named=named or "")

    async def _page(self, kind: Kind, sight: Sight, selection: Selection) -> Page[Any]:
        if kind is Kind.DECISIONS:
            return await self._decision_page(sight, selection)
        with _errors():
            raw = await self._listing.ask(partial(_encoded_page, kind, sight, selection))
        found: Page[Any] = _DECODERS[kind].decode(raw)
        return found

    async def _decision_page(self, sight: Sight, selection: Selection) -> Page[Any]:
        if self._decisions is None:
            raise HttpError(404, "this replica only observes, so it has no decision log")
        try:
            logged = await self._decisions(LOG_LENGTH)
        except ReservationError as error:
            # Not the error itself: it says where Redis is, which is not for every caller.
            message = "Redis does not answer, so the decision log cannot be read now; ask again"
            raise HttpError(503, message, headers={"Retry-After": "5"}) from error
        raw = await _ask(
            self._logs,
            lambda: msgspec.msgpack.encode(decision_page(map(decision_item, logged), sight, selection)),
        )
        found: Page[Any] = _DECODERS[Kind.DECISIONS].decode(raw)
        return found


async def _ask(copies: Copies, question: Callable[[], bytes]) -> bytes:
    """Return the answer that is found in a copy. Raises HttpError."""
    with _errors():
        return await copies.ask(question)


def _encoded_page(kind: Kind, sight: Sight, selection: Selection, lists: Lists) -> bytes:
    # Encoded in the copy: to decode structs takes far less time than to build them.
    return msgspec.msgpack.encode(lists.page(kind, sight, selection))


def _encoded_usage(query: UsageQuery, sight: Sight, now: float, lists: Lists) -> bytes:
    return msgspec.msgpack.encode(usage(lists.engine, query, sees=sight.sees, now=now))


@contextmanager
def _errors() -> Iterator[None]:
    """Raise HttpError for what a copy raises."""
    try:
        yield
    except (BadSelectionError, BadQuestionError) as error:
        raise HttpError(400, str(error)) from error
    except CopyFailedError as error:
        raise HttpError(503, str(error), headers={"Retry-After": "5"}) from error


def _explanation(
    engine: Engine, named: tuple[str, str], sight: Sight, *, now: float, trial_seconds: float
) -> dict[str, Any]:
    """Return the explanation, empty if there is no such Workload. Runs in a copy."""
    workload = find_workload(engine, *named)
    if workload is None:
        return {}
    answer = whole_answer(engine, workload, now=now, sight=sight)
    if trial_seconds:
        ends_at = time.monotonic() + trial_seconds
        helping = found_remedies(
            engine, answer, ask_in_copy, now=now, is_over=lambda: time.monotonic() > ends_at
        )
        answer = replace(answer, remedies=helping)
    seen = as_seen(answer, sight)
    planned = engine.promises.planned(workload.key)
    return {**to_body(seen, now=now), "promise": None if planned is None else promise_item(planned)}


def _name_of(item: WorkloadItem) -> tuple[str, str]:
    return item.namespace, item.name


def _query(selection: Selection) -> tuple[dict[str, str], str, int, str]:
    filters = dict(sorted(selection.filters.items()))
    return filters, selection.sort, selection.limit, selection.continue_after


def _selection(kind: Kind, query: Mapping[str, str]) -> Selection:
    try:
        return read_selection(query, choices_of(kind))
    except BadSelectionError as error:
        raise HttpError(400, str(error)) from error


_DECODERS = {
    kind: msgspec.msgpack.Decoder(Page[item_type(kind)])  # type: ignore[misc]
    for kind in Kind
}
