"""The query service: what `/v1`, the page and assistants ask, with the rights of each caller.

All of them ask this one object, so the same question has the same answer and the same words everywhere.

    page = await service.list(caller, Kind.WORKLOADS, {"status": "pending", "sort": "position"})
    item = await service.get(caller, Kind.CLUSTER_QUEUES, "team-a")

`caller` comes from `Callers.caller(request)`. Answers are the structs of `admission.answers`, and the JSON of
/v1 is what `msgspec.json.encode` makes of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from admission.answers.items import Item, Kind, Page
from admission.answers.lists import choices_of, decision_page, item_type, page
from admission.answers.promise_items import decision_item
from admission.answers.selection import BadSelectionError, Selection, read_selection
from admission.answers.sight import Sight
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.queries.callers import Caller, RateLimits, Rights
from admission.controller.queries.copies import Copies, CopyFailedError
from admission.engine.engine import Engine
from api.http.server import HttpError
from queues.reservations.reservations import LOG_LENGTH, LoggedDecision, ReservationError

# Returns up to that many of the last decisions, the newest first.
Decisions = Callable[[int], Awaitable[tuple[LoggedDecision, ...]]]
# The lists whose items belong to a namespace.
NAMESPACED = frozenset({Kind.WORKLOADS, Kind.LOCAL_QUEUES, Kind.PROMISES, Kind.DECISIONS})
# The lists whose items have a name of their own.
BY_NAME = frozenset({Kind.WORKLOADS, Kind.CLUSTER_QUEUES, Kind.LOCAL_QUEUES, Kind.COHORTS, Kind.PROMISES})


class QueryService:
    """Answers queries. Raises HttpError with a status and one sentence wherever it does not.

    400 for a query that cannot be read, 403 without the rights, 404 for what does not exist or may not be
    seen, 429 for a caller that asks too often, 503 while a part that is needed does not answer. `decisions`
    None: this replica has no decision log.
    """

    def __init__(
        self, cluster_state: ClusterState, rights: Rights, limits: RateLimits, decisions: Decisions | None
    ) -> None:
        self._cluster_state = cluster_state
        self._rights = rights
        self.limits = limits
        self._decisions = decisions
        self._copies = Copies()

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

    async def _sight(self, caller: Caller, selection: Selection) -> Sight:
        named = selection.filters.get("namespace")
        known = named.split(",") if named is not None else self._engine.queues.namespaces()
        return await self._rights.require(caller, known)

    async def _page(self, kind: Kind, sight: Sight, selection: Selection) -> Page[Any]:
        if kind is Kind.DECISIONS:
            return await self._decision_page(sight, selection)
        engine = self._engine
        # Encoded in the copy: to decode structs takes far less time here than to build them.
        raw = await self._ask(lambda: msgspec.msgpack.encode(page(engine, kind, sight, selection)))
        found: Page[Any] = _DECODERS[kind].decode(raw)
        return found

    async def _decision_page(self, sight: Sight, selection: Selection) -> Page[Any]:
        if self._decisions is None:
            raise HttpError(404, "this replica only observes, so it has no decision log")
        try:
            logged = await self._decisions(LOG_LENGTH)
        except ReservationError as error:
            raise HttpError(503, str(error)) from error
        try:
            return decision_page(map(decision_item, logged), sight, selection)
        except BadSelectionError as error:
            raise HttpError(400, str(error)) from error

    async def _ask(self, question: Callable[[], bytes]) -> bytes:
        try:
            return await self._copies.ask(question)
        except BadSelectionError as error:
            raise HttpError(400, str(error)) from error
        except CopyFailedError as error:
            raise HttpError(503, str(error), headers={"Retry-After": "5"}) from error


def _selection(kind: Kind, query: Mapping[str, str]) -> Selection:
    try:
        return read_selection(query, choices_of(kind))
    except BadSelectionError as error:
        raise HttpError(400, str(error)) from error


_DECODERS = {
    kind: msgspec.msgpack.Decoder(Page[item_type(kind)])  # type: ignore[misc]
    for kind in Kind
}
