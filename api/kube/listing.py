"""Lists, read page by page.

Each object is decoded separately, so that a broken one does not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from api.kube.errors import Gone, TooManyRequests, malformed
from api.kube.resources import Resource

# Objects per page. Kubernetes' own clients use 500; larger pages block the event loop for longer.
PAGE_SIZE = 500
# A page is asked for this often while the server answers 429, each time after the pause that it asks for, or
# this one. A list that began again instead would never end at a server that refuses half of all requests.
ATTEMPTS_AT_PAGE = 10
PAUSE_SECONDS = 1.0


class ObjectMeta(Protocol):
    """The fields of an object's metadata that every kind must decode."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """An object that can be listed and watched: any msgspec struct with `metadata`."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)

Key = tuple[str, str]  # namespace ("" where there is none), name


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that cannot be decoded. `error` names the field; `raw` is its JSON without managedFields."""

    namespace: str
    name: str
    error: str
    raw: bytes
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ListResult(Generic[T_co]):
    """All objects of a kind at `resource_version`, in the server's order."""

    items: tuple[T_co, ...]
    resource_version: str
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `restarted`: the list starts again, and earlier pages must be discarded."""

    items: list[msgspec.Raw]
    resource_version: str
    restarted: bool


class Reader(Generic[T]):
    """Decodes the objects of one kind from lists and watches."""

    def __init__(self, type_: type[T], resource: Resource) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        # Items in the list of a built-in kind lack apiVersion and kind, which a PUT of their bytes needs.
        self._api_version = msgspec.Raw(msgspec.json.encode(resource.api_version))
        self._kind = msgspec.Raw(msgspec.json.encode(resource.kind))

    def own_bytes(self, raw: msgspec.Raw) -> bytes:
        """Return a copy of the object's JSON, with apiVersion and kind and without managedFields.

        It is a copy, because a slice would keep the whole page in memory. managedFields are up to half of an
        object, and a server keeps them if a write omits them. Nothing else is parsed: 3-5 us for 4 KB. Raises
        msgspec.DecodeError if `raw` is not an object.
        """
        fields = _object_decoder.decode(raw)
        if "kind" not in fields:
            fields = {"apiVersion": self._api_version, "kind": self._kind, **fields}
        metadata = fields.get("metadata")
        if metadata is not None and b'"managedFields"' in bytes(metadata):
            fields["metadata"] = _without_managed_fields(metadata)
        return msgspec.json.encode(fields)

    def read(self, raw: msgspec.Raw) -> tuple[T | Unreadable, bytes]:
        """Return the decoded object, or an Unreadable with the reason, and the copy of its bytes.

        Never raises: what cannot be decoded is an answer. The bytes are a copy without managedFields, so that
        a page of a list is not kept in memory by one of its objects.
        """
        try:
            own = self.own_bytes(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Unreadable("", "", str(error), bytes(raw)), bytes(raw)
        try:
            return self._decoder.decode(own), own
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _unreadable(own, str(error)), own


async def pages(
    fetch: Callable[[str, Mapping[str, str]], Awaitable[bytes]],
    path: str,
    params: Mapping[str, str],
    page_size: int = PAGE_SIZE,
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a list at one resourceVersion, read from a quorum.

    The continue token of a list expires after some minutes (410). Then the remaining pages are lost, and the
    list is read again as a single page, as in client-go. Raises KubeError.
    """
    query = {**params, "limit": str(page_size)}
    restarted = False
    attempt = 1
    while True:
        try:
            body = await fetch(path, query)
        except TooManyRequests as error:
            if attempt == ATTEMPTS_AT_PAGE:
                raise
            await asyncio.sleep(error.retry_after_seconds or PAUSE_SECONDS)
            attempt += 1
            continue
        except Gone:
            if "continue" not in query:
                raise
            query, restarted = dict(params), True
            continue
        page = _decode_page(body)
        token = page.metadata.continue_
        yield Page(page.items or [], page.metadata.resource_version, restarted)
        if not token:
            return
        query, restarted, attempt = {**query, "continue": token}, False, 1


async def collect(
    fetch: Callable[[str, Mapping[str, str]], Awaitable[bytes]],
    path: str,
    params: Mapping[str, str],
    reader: Reader[T],
) -> ListResult[T]:
    """Return the whole list. Raises KubeError.

    `fetch` sends a GET for a path and query parameters. All pages are of one resourceVersion: where the list
    had to start again, earlier pages are discarded.
    """
    items: list[T] = []
    unreadable: list[Unreadable] = []
    version = ""
    async with aclosing(pages(fetch, path, params)) as stream:
        async for page in stream:
            if page.restarted:
                items, unreadable = [], []
            for raw in page.items:
                value, _ = reader.read(raw)
                if isinstance(value, Unreadable):
                    unreadable.append(value)
                else:
                    items.append(value)
            version = page.resource_version
    return ListResult(tuple(items), version, tuple(unreadable))


def list_version(body: bytes) -> str:
    """Return the resourceVersion of a list. Raises ServerError if it is malformed."""
    return _decode_page(body).metadata.resource_version


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list or a bookmark."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Names(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Names = msgspec.field(default_factory=_Names)


_list_decoder = msgspec.json.Decoder(_List)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_named_decoder = msgspec.json.Decoder(_Named)


def _decode_page(body: bytes) -> _List:
    """Return one page of a list. Raises ServerError if it is malformed."""
    try:
        return _list_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed("list of objects", error) from error


def _without_managed_fields(metadata: msgspec.Raw) -> msgspec.Raw:
    """Return the metadata without managedFields, which are up to half of an object."""
    fields = _object_decoder.decode(metadata)
    fields.pop("managedFields", None)
    return msgspec.Raw(msgspec.json.encode(fields))


def _unreadable(own: bytes, error: str) -> Unreadable:
    """Return the object with as much of its identity as can be decoded."""
    try:
        names = _named_decoder.decode(own).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        names = _Names()
    return Unreadable(names.namespace, names.name, error, own, names.resource_version)
