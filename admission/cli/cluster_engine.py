"""An engine filled with a live cluster's objects, for commands that answer without the controller."""

from __future__ import annotations

from admission.engine import Engine, EngineSettings
from admission.manifests import READERS, note_unreadable, take
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import Resource
from api.objects import Meta

_RESOURCES = {
    one.kind: one for one in vars(resources).values() if isinstance(one, Resource) and one.kind in READERS
}


async def read_cluster(
    client: KubeClient, settings: EngineSettings, *, now: float
) -> tuple[Engine, tuple[str, ...]]:
    """Return an engine that knows the cluster, and one sentence for each object or kind it could not read.

    A kind that the server does not serve is none: every kind is optional. `now` is in Unix seconds.
    """
    engine = Engine(settings)
    problems: list[str] = []
    for kind, reader in READERS.items():
        try:
            listed = await client.list(_RESOURCES[kind], type_=reader.wire)
        except NotFound:
            continue
        except Forbidden as error:
            problems.append(f"{_RESOURCES[kind].plural} may not be read: {error}")
            continue
        for one in listed.items:
            problem = take(engine, kind, one, now=now)
            if problem is not None:
                problems.append(problem)
        for broken in listed.unreadable:
            meta = Meta(namespace=broken.namespace, name=broken.name)
            problems.append(note_unreadable(engine, kind, meta, broken.error, now=now))
    return engine, tuple(problems)
