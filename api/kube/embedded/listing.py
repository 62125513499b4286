"""Lists: selection, paging and the bytes of the response."""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from api.kube.embedded.apply.errors import ApiError, expired
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.kinds.selectors import Predicate, field_selector, label_selector
from api.kube.embedded.kinds.tables import partial_object, table
from api.kube.embedded.requests import Target, whole_number
from api.kube.embedded.store import ObjectStore, Stored, encode

# Maximum number of lists that are read page by page. The oldest is dropped; its client gets
# 410 and lists again.
_MAX_OPEN_LISTS = 256
_TABLE: Final = "as=Table"
_PARTIAL: Final = "as=PartialObjectMetadata"


def matcher(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """Return the predicate for name and selectors; None selects all objects. Raises ApiError (400)."""
    tests: list[Predicate] = []
    if (name := target.name) is not None:
        tests.append(lambda item: item["metadata"]["name"] == name)
    if text := query.get("labelSelector"):
        tests.append(label_selector(text))
    # Tests are combined only if there are several; most lists have one selector.
    if text := query.get("fieldSelector"):
        kind = target.kind
        tests.append(field_selector(text, kind.selectable, kind.selectable_aliases))
    if len(tests) <= 1:
        return tests[0] if tests else None
    return lambda item: all(test(item) for test in tests)


def shape(kind: Kind, accept: str, query: Mapping[str, str]) -> Callable[[JsonObject], JsonObject] | None:
    """Return the conversion of single objects that the Accept header requests; None for no conversion."""
    if _TABLE in accept:
        include = query.get("includeObject", "")
        return lambda item: table(
            kind, [item], {"resourceVersion": item["metadata"]["resourceVersion"]}, include
        )
    return partial_object if _PARTIAL in accept else None


class ObjectLister:
    """Handles list requests, and keeps the remaining pages of lists that are read page by page."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._open: OrderedDict[str, tuple[int, Sequence[Stored]]] = OrderedDict()

    def select(self, target: Target, query: Mapping[str, str]) -> list[Stored]:
        """Return the selected objects in the version of the target."""
        kind = target.kind
        views = [kind.view(stored) for stored in kind.collection.all(target.namespace)]
        match = matcher(target, query)
        return views if match is None else [view for view in views if match(view.item)]

    def list(self, target: Target, query: Mapping[str, str], accept: str) -> bytes:
        """Return the body of a list. Raises ApiError (400, 410, 504)."""
        self._check_version(query)
        limit = whole_number("limit", query.get("limit") or 0)
        # All pages show the same version: the remaining objects are kept, whatever changes meanwhile.
        if token := query.get("continue"):
            version, found = self._continued(token)
        else:
            version, found = self._store.version, self.select(target, query)
        metadata: JsonObject = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            rest = found[limit:]
            metadata["continue"] = self._keep(version, rest)
            metadata["remainingItemCount"] = len(rest)
            found = found[:limit]
        return _body(target.kind, found, metadata, query, accept)

    def _check_version(self, query: Mapping[str, str]) -> None:
        text = query.get("resourceVersion") or "0"
        asked = whole_number("resourceVersion", text)
        current = self._store.version
        # The client has seen a later version than this server has, from before a restart, so it
        # is asked to retry.
        if asked > current:
            message = f"Timeout: Too large resource version: {asked}, current: {current}"
            raise ApiError(504, "Timeout", message, details={"retryAfterSeconds": 1}, retry_after_seconds=1)
        # Only the current version is available, because old ones are not kept.
        if query.get("resourceVersionMatch") == "Exact" and asked != current:
            raise expired(f"The provided resource version {asked} is no longer kept; list without it.")

    def _continued(self, token: str) -> tuple[int, Sequence[Stored]]:
        if token not in self._open:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "Restart the list without it."
            )
        # Removed, because each page can be read only once, as from a generator.
        return self._open.pop(token)

    def _keep(self, version: int, rest: Sequence[Stored]) -> str:
        token = uuid.uuid4().hex
        self._open[token] = (version, rest)
        if len(self._open) > _MAX_OPEN_LISTS:
            self._open.popitem(last=False)
        return token


def _body(
    kind: Kind, found: Sequence[Stored], metadata: JsonObject, query: Mapping[str, str], accept: str
) -> bytes:
    if _TABLE in accept:
        items = [stored.item for stored in found]
        return encode(table(kind, items, metadata, query.get("includeObject", "")))
    if _PARTIAL in accept:
        listed = [partial_object(stored.item) for stored in found]
        return encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": listed,
            }
        )
    head = encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(stored.raw for stored in found) + b"]}"
