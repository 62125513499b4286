"""The definitions of the kinds of `integrations.external`: whether they have the paths of their rows.

The API server drops a field that a definition does not have, so an object whose field of suspend is dropped
could never be stopped. A kind that is there at the start is left out then. One whose definition comes later
is watched already: its row is named as soon as the definition is there, and the next start leaves it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum, auto

import msgspec

from admission.controller.runtime.logs import Log
from api.jobs.owners.external import ExternalKind, unknown_paths
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, KubeError, NotFound

log = Log("berth.controller")

# Between two looks for a definition that is absent: each is one small request.
LOOK_SECONDS = 30.0


class Definition(Enum):
    """What is known of a kind's definition: it is absent, may not be read, has all paths, or lacks one."""

    ABSENT = auto()
    UNREADABLE = auto()
    FITS = auto()
    LACKS_PATHS = auto()


async def definition_of(client: KubeClient, kind: ExternalKind, *, without: str) -> Definition:
    """Return how the definition of a kind fits its row. Logs each path that it does not have.

    `without` is what does not happen for want of them. Raises KubeError.
    """
    try:
        raw = await client.get(resources.CRDS, f"{kind.plural}.{kind.group}")
    except NotFound:
        return Definition.ABSENT
    except Forbidden:
        return Definition.UNREADABLE
    unknown = unknown_paths(kind, msgspec.json.decode(raw))
    for sentence in unknown:
        log.warning("path-missing", note=sentence, without=without)
    return Definition.LACKS_PATHS if unknown else Definition.FITS


async def name_late_definitions(client: KubeClient, kinds: Iterable[ExternalKind]) -> None:
    """Look for the definitions of these kinds, and return once each has come and was checked."""
    absent = list(kinds)
    while absent:
        absent = [kind for kind in absent if await _is_absent(client, kind)]
        if absent:
            await asyncio.sleep(LOOK_SECONDS)


async def _is_absent(client: KubeClient, kind: ExternalKind) -> bool:
    without = f"a {kind.kind} cannot be stopped, or not be counted; it is left out after a restart"
    try:
        return await definition_of(client, kind, without=without) is Definition.ABSENT
    except KubeError:
        # Everything else that the controller does reports the failure.
        return True
