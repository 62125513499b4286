"""HTTP handlers: from a request to its response, for every verb of the API."""

from collections.abc import Callable, Mapping, Sequence
from unicodedata import category
from urllib.parse import unquote

from aiohttp import web

from api.kube.embedded import requests
from api.kube.embedded.apply.errors import (
    ApiError,
    bad_request,
    invalid,
    method_not_allowed,
    required,
    unsupported_media_type,
)
from api.kube.embedded.apply.patches import json_patch, merge_patch, strategic_merge
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.discovery import discover
from api.kube.embedded.disruption import EvictionApi
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.listing import ObjectLister, shape
from api.kube.embedded.options import WriteOptions, WriteOutcome
from api.kube.embedded.protobuf import PROTOBUF, read_protobuf
from api.kube.embedded.requests import Target
from api.kube.embedded.store import ObjectStore, Stored, encode
from api.kube.embedded.tokens import REVIEWS_PATH, Tokens
from api.kube.embedded.verbs import Verbs
from api.kube.embedded.watching import Watcher
from api.wire.addressing import refusal

_HEALTH = ("healthz", "livez", "readyz")


class Api:
    """Answers HTTP requests from the store."""

    def __init__(self, store: ObjectStore, catalog: Catalog, verbs: Verbs) -> None:
        self._catalog = catalog
        self._verbs = verbs
        self._tokens = Tokens(verbs, catalog)
        self._disruptions = EvictionApi(store, catalog, verbs)
        self._lister = ObjectLister(store)
        self._watcher = Watcher(store, self._lister)
        # Served without login to this machine alone, so not to sites that its browser shows.
        self.is_local = False

    def close(self) -> None:
        """End every watch."""
        self._watcher.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request; an ApiError becomes a Status."""
        try:
            if self.is_local and (refused := refusal(request.headers)) is not None:
                code, message = refused
                raise ApiError(code, "Forbidden", message)
            return await self._answer(request)
        except ApiError as error:
            return _refusal(error)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        # The parts of the path are unquoted separately, because a name may contain a quoted slash.
        parts = [unquote(part) for part in request.rel_url.raw_path.strip("/").split("/")]
        if parts[0] in _HEALTH:
            return web.Response(text="ok")
        if tuple(parts) == REVIEWS_PATH and request.method == "POST":
            body = await requests.read_body(request)
            review = requests.decode_body(body, request.content_type)
            return _json(encode(self._tokens.review(review)), status=201)
        # Paths that do not lead to objects belong to discovery.
        target = requests.find_target(self._catalog, parts)
        if target is None:
            if request.method != "GET":
                raise method_not_allowed()
            return _json(encode(discover(self._catalog, parts)))
        # At a thousand requests per second, parsing an empty query costs more than this check.
        query: Mapping[str, str] = request.query if request.query_string else {}
        if request.method == "GET":
            return await self._read(request, target, query)
        # The body is read before any lookup: from here on the request is one atomic step.
        body = await requests.read_body(request)
        match request.method:
            case "POST":
                return self._post(request, target, query, body)
            case "PUT" if target.name:
                return self._put(request, target, query, body)
            case "PATCH" if target.name:
                return self._patch(request, target, query, body)
            case "DELETE" if target.name:
                return self._delete(request, target, query, body)
            case "DELETE":
                return self._delete_collection(request, target, query, body)
        raise method_not_allowed()

    async def _read(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str]
    ) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        _check_accept(accept)
        if requests.is_true(query.get("watch")):
            return await self._watcher.serve(request, target, query)
        if target.name is None:
            return _json(self._lister.list(target, query, accept))
        stored = self._verbs.get(target.kind, target.space, target.name)
        turn = shape(target.kind, accept, query)
        return _json(stored.raw if turn is None else encode(turn(stored.item)))

    def _post(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], body: bytes
    ) -> web.Response:
        # `kubectl create` of some kinds, and Go clients, send protobuf.
        is_binary = request.content_type == PROTOBUF
        data = read_protobuf(body) if is_binary else requests.decode_body(body, request.content_type)
        options = requests.write_options(query, request.headers)
        if target.name is None:
            if target.kind.namespaced and target.namespace is None:
                raise method_not_allowed()
            return _outcome(self._verbs.create(target.kind, target.space, data, options))
        match target.subresource:
            case "binding":
                return self._bind(target, data, options)
            case "eviction":
                return self._evict(target, data, query)
            case "token":
                return _json(encode(self._tokens.give(target, data)), status=201)
        raise method_not_allowed()

    def _put(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], body: bytes
    ) -> web.Response:
        data = requests.decode_body(body, request.content_type)
        options = requests.write_options(query, request.headers, target.subresource)
        name = target.name or ""
        if target.subresource == "finalize":
            return _outcome(self._verbs.finalize(target.kind, name, data))
        _check_updatable(target)
        return _outcome(self._verbs.replace(target.kind, target.space, name, data, options))

    def _patch(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], body: bytes
    ) -> web.Response:
        _check_updatable(target)
        accepted = _patch_types(target)
        if request.content_type not in accepted:
            raise unsupported_media_type(accepted)
        data = requests.decode_body(body, request.content_type, accepted)
        options = requests.write_options(query, request.headers, target.subresource)
        if request.content_type == requests.APPLY_PATCH:
            return _outcome(self._apply(target, query, data, options))
        # `force` resolves conflicts between managers, which only server-side apply can have.
        if "force" in query:
            raise bad_request("force: may not be specified for non-apply patch")
        change = _change(target, request.content_type, data)
        return _outcome(self._verbs.update(target.kind, target.space, target.name or "", change, options))

    def _apply(
        self, target: Target, query: Mapping[str, str], data: Json, options: WriteOptions
    ) -> WriteOutcome:
        # Without a manager, the fields would have no owner.
        if not query.get("fieldManager"):
            message = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
            raise ApiError(422, "Invalid", message + "is required for apply patch")
        force = requests.is_true(query.get("force"))
        return self._verbs.apply(target.kind, target.space, target.name or "", data, options, force=force)

    def _delete(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], body: bytes
    ) -> web.Response:
        if target.subresource:
            raise method_not_allowed()
        options = requests.delete_options(query, requests.decode_body(body, request.content_type))
        outcome = self._verbs.delete(target.kind, target.space, target.name or "", options)
        # 202 while finalizers or a grace period delay the deletion, otherwise
        # 200; kubectl distinguishes them.
        is_pending = not outcome.deleted and options.propagation in ("Foreground", "Background")
        if outcome.deleted and not target.kind.strategy.returns_deleted:
            return _json(encode(_deleted_status(target, outcome.stored)))
        return _json(outcome.stored.raw, status=202 if is_pending else 200)

    def _delete_collection(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], body: bytes
    ) -> web.Response:
        options = requests.delete_options(query, requests.decode_body(body, request.content_type))
        if target.kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        deleted: list[bytes] = []
        for stored in self._lister.select(target, query):
            metadata = stored.item["metadata"]
            namespace = metadata.get("namespace", "")
            outcome = self._verbs.delete(target.kind, namespace, metadata["name"], options)
            deleted.append(outcome.stored.raw)
        kind = target.kind
        # The list is assembled from the existing bytes of the objects.
        head = encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}})
        return _json(head[:-1] + b',"items":[' + b",".join(deleted) + b"]}")

    def _bind(self, target: Target, data: Json, options: WriteOptions) -> web.Response:
        node = ((data or {}).get("target") or {}).get("name")
        if not node:
            raise invalid(target.kind, target.name or "", [required("target.name")])
        self._verbs.bind(target.kind, target.space, target.name or "", node, data, options)
        return _json(encode(_success()), status=201)

    def _evict(self, target: Target, data: Json, query: Mapping[str, str]) -> web.Response:
        given = (data or {}).get("deleteOptions") or {}
        options = requests.delete_options(query, given)
        # The check and the deletion are one atomic step, so that no other eviction can come in between.
        self._disruptions.evict(target.kind, target.space, target.name or "", options)
        return _json(encode(_success()), status=201)


def _check_accept(accept: str) -> None:
    """Raise ApiError (406) if the client accepts only binary formats."""
    if accept and not any(form in accept for form in ("json", "*/*", "application/*", "text")):
        message = "only the following media types are accepted: application/json"
        raise ApiError(406, "NotAcceptable", message)


def _check_updatable(target: Target) -> None:
    if target.subresource not in ("", "status"):
        raise method_not_allowed()


def _patch_types(target: Target) -> Sequence[str]:
    types = (requests.JSON_PATCH, requests.MERGE_PATCH, requests.APPLY_PATCH)
    return types if target.kind.is_custom else (*types, requests.STRATEGIC_PATCH)


def _change(target: Target, content_type: str, data: Json) -> Callable[[JsonObject], JsonObject]:
    if content_type == requests.JSON_PATCH:
        return lambda item: json_patch(item, data)
    if not isinstance(data, dict):
        raise bad_request("the patch is no JSON object")
    # RFC 7386 also allows other patches, but they make no sense as a change of an object.
    if content_type == requests.MERGE_PATCH:
        return lambda item: merge_patch(item, data)
    schema = target.kind.schema
    return lambda item: strategic_merge(schema, item, data)


def _outcome(outcome: WriteOutcome) -> web.Response:
    response = _json(outcome.stored.raw, status=201 if outcome.created else 200)
    for warning in outcome.warnings:
        # As kube-apiserver does: no header can hold such a text, and the write has been done.
        if any(category(character) in ("Cc", "Cs") for character in warning):
            continue
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refusal(error: ApiError) -> web.Response:
    response = _json(encode(error.status()), status=error.code)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def _success() -> JsonObject:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _deleted_status(target: Target, stored: Stored) -> JsonObject:
    details = {**target.kind.details(target.name or ""), "uid": stored.item["metadata"]["uid"]}
    return {**_success(), "details": details}
