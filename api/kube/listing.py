"""Lists: page by page, and each object by itself, so that one broken object cannot hide the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from api.kube.errors import Gone, malformed
from api.kube.resources import Resource

# Objects a page. Kubernetes' own clients use 500; larger pages hold the event loop longer.
PAGE_SIZE = 500


class ObjectMeta(Protocol):
    """The part of an object's metadata that every kind must decode."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """What can be listed and watched: any msgspec struct with `metadata`."""

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
    """A part of a list. `restarted` tells that the list begins anew and earlier pages do not count."""

    items: list[msgspec.Raw]
    resource_version: str
    is_last: bool
    restarted: bool


class Reader(Generic[T]):
    """Decodes one kind's objects from what lists and watches deliver."""

    def __init__(self, type_: type[T], resource: Resource) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        # Objects in the list of a built-in kind do not say what they are; a PUT of their bytes should.
        self._api_version = msgspec.Raw(msgspec.json.encode(resource.api_version))
        self._kind = msgspec.Raw(msgspec.json.encode(resource.kind))

    def own_bytes(self, raw: msgspec.Raw) -> bytes:
        """Return the object's JSON as bytes of its own, with apiVersion and kind and without managedFields.

        Of its own: a slice would keep the whole page alive. managedFields are up to half of an object, and a
        server keeps them when a write leaves them out. Nothing else is parsed: 3-5 us for 4 KB. Raises
        msgspec.DecodeError where `raw` is no object.
        """
        fields = _object_decoder.decode(raw)
        if "kind" not in fields:
            fields = {"apiVersion": self._api_version, "kind": self._kind, **fields}
        metadata = fields.get("metadata")
        if metadata is not None and b'"managedFields"' in bytes(metadata):
            fields["metadata"] = _without_managed_fields(metadata)
        return msgspec.json.encode(fields)

    def read(self, raw: msgspec.Raw) -> tuple[T | Unreadable, bytes]:
        """Return the decoded object, or who cannot be decoded and why, and its own bytes."""
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
    """Yield the pages of a list as of one moment, read from a quorum.

    A server forgets the moment of a list after some minutes (410): then the rest cannot be had and the list
    is read again, in one piece, as client-go does. Raises KubeError.
    """
    query = {**params, "limit": str(page_size)}
    restarted = False
    while True:
        try:
            body = await fetch(path, query)
        except Gone:
            if "continue" not in query:
                raise
            query, restarted = dict(params), True
            continue
        page = _decode_page(body)
        token = page.metadata.continue_
        yield Page(page.items or [], page.metadata.resource_version, not token, restarted)
        if not token:
            return
        query, restarted = {**query, "continue": token}, False


async def collect(
    fetch: Callable[[str, Mapping[str, str]], Awaitable[bytes]],
    path: str,
    params: Mapping[str, str],
    reader: Reader[T],
) -> ListResult[T]:
    """Return the whole list at once. Raises KubeError."""
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


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list, and of a bookmark."""

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
    try:
        return _list_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed("list of objects", error) from error


def _without_managed_fields(metadata: msgspec.Raw) -> msgspec.Raw:
    fields = _object_decoder.decode(metadata)
    fields.pop("managedFields", None)
    return msgspec.Raw(msgspec.json.encode(fields))


def _unreadable(own: bytes, error: str) -> Unreadable:
    try:
        names = _named_decoder.decode(own).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        names = _Names()
    return Unreadable(names.namespace, names.name, error, own, names.resource_version)
