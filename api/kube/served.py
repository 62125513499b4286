"""Which groups and versions an API server serves, asked once for all that wait for a kind of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from api.kube.errors import malformed
from api.kube.resources import Resource


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct):
    versions: Sequence[_Version] = ()


class _GroupList(msgspec.Struct):
    groups: Sequence[_Group] = ()


class ServedVersions:
    """The groups and versions of one API server. `ask` returns its answer to GET /apis.

    That answer is short, unlike that with all kinds: a version that is served may lack a single kind.
    """

    def __init__(self, ask: Callable[[], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._known: frozenset[str] = frozenset()
        self._asked_at = float("-inf")

    async def has(self, resource: Resource, *, max_age_seconds: float) -> bool:
        """Return whether the group and version of a kind are served, as known for at most so long.

        Raises KubeError.
        """
        if not resource.group:
            return True
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._asked_at >= max_age_seconds:
                self._known = _decoded(await self._ask())
                self._asked_at = now
            return resource.api_version in self._known


def _decoded(body: bytes) -> frozenset[str]:
    try:
        found = msgspec.json.decode(body, type=_GroupList)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed("list of API groups", error) from error
    return frozenset(version.group_version for group in found.groups for version in group.versions)
