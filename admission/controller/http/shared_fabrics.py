"""What the replicas of the scheduler extender have agreed on: the fabric of each training job without a node.

kube-scheduler waits for each answer, so a store that does not answer is left alone for a while, and each
replica then expects by itself, as without a store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.placement.training_jobs import EXPECTED_SECONDS, TrainingJob
from api.kube.client import KubeClient
from api.kube.cluster_identity import cluster_identity
from queues.reservations.reservations import ReservationError
from queues.store.access import StoreAccess
from queues.store.fabric_choices import FabricChoices
from queues.store.seal import Seal

log = Log("berth.extender")
_T = TypeVar("_T")

# Twice this, with the repeated call of a pool, must be little beside the milliseconds of a placement.
CALL_SECONDS = 0.05
# How long a store that did not answer is not asked again.
REST_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The Redis of a shard. `keys` sign its values; `cluster_id` None is the uid of kube-system."""

    url: str = field(repr=False)
    access: StoreAccess = field(default_factory=StoreAccess)
    keys: tuple[str, ...] = field(default=(), repr=False)
    cluster_id: str | None = None
    shard: str = "default"


async def open_choices(options: StoreOptions, client: KubeClient) -> FabricChoices:
    """Return the choices, without connecting yet.

    Raises BadStoreUrl; KubeError without the cluster's identity, which signatures need.
    """
    choices = FabricChoices.from_url(
        options.url, shard=options.shard, access=options.access, call_seconds=CALL_SECONDS
    )
    if options.keys:
        cluster = options.cluster_id
        if cluster is None:
            cluster = await cluster_identity(client)
        choices.seal = Seal(options.keys, cluster=cluster)
    else:
        log.warning("store-not-signed", note="any client of Redis can forge its values; set --store-key")
    return choices


class SharedFabrics:
    """The agreement; without a store (None) each replica expects by itself."""

    def __init__(self, choices: FabricChoices | None, clock: Clock) -> None:
        self._choices = choices
        self._clock = clock
        self._rests_until = 0.0

    async def chosen(self, job: TrainingJob) -> str:
        """Return the fabric that a replica has chosen for the job; "" if none is known."""
        choices = self._choices
        if choices is None:
            return ""
        return await self._ask(lambda: choices.chosen(job.namespace, job.id), without="")

    async def choose(self, job: TrainingJob, fabric: str) -> str:
        """Return the fabric that was chosen first; this one if no other replica has chosen."""
        choices = self._choices
        if choices is None:
            return fabric
        return await self._ask(
            lambda: choices.choose(job.namespace, job.id, fabric, seconds=EXPECTED_SECONDS), without=fabric
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._choices is not None:
            await self._choices.close()

    async def _ask(self, call: Callable[[], Awaitable[_T]], *, without: _T) -> _T:
        if self._clock.monotonic() < self._rests_until:
            return without
        try:
            return await call()
        except ReservationError as error:
            self._rests_until = self._clock.monotonic() + REST_SECONDS
            log.warning("store-lost", reason=error, note="each replica expects training jobs by itself")
            return without
