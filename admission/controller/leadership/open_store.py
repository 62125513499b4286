"""Opening the store at the start: the Redis of the options or an embedded one, with signed values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options
from api.kube.client import KubeClient
from api.kube.cluster_identity import cluster_identity
from queues.reservations.reservations import CorruptValue, StoreUnreachable
from queues.store.embedded import EmbeddedRedis
from queues.store.plan_rows import RowFault
from queues.store.redis_scripts import log_corrupt
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import Seal

log = Log("berth.controller")


@asynccontextmanager
async def open_store(
    client: KubeClient, options: Options, metrics: Metrics
) -> AsyncIterator[RedisReservationStore]:
    """Give the store. Raises ReservationError; KubeError without the cluster's identity."""
    shard = options.config.berth.shard
    if options.redis_url is None:
        async with EmbeddedRedis() as embedded:
            store = await embedded.start(options.store_directory, shard=shard)
            # Without a redis-server there is no URL: what is stored then ends with this process, and a
            # warning has said so.
            if embedded.url is not None:
                log.info("embedded-store", url=embedded.url)
            await _guard(store, client, options, metrics, keys=embedded.signing_keys)
            yield store
        return
    store = RedisReservationStore.from_url(options.redis_url, shard=shard, access=options.store_access)
    store.replication = options.store_replication
    try:
        await _guard(store, client, options, metrics, keys=options.store_keys)
        await _greet(store, is_required=options.require_store)
        yield store
    finally:
        await store.close()


async def _greet(store: RedisReservationStore, *, is_required: bool) -> None:
    """Raise ReservationError for a store that refuses Berth, or that is required and does not answer.

    Otherwise a store that does not answer is one that is lost: admission begins without it, so that a restart
    during its outage stops nothing. A refusal has to be mended where Berth is started.
    """
    try:
        await store.ping()
    except StoreUnreachable as error:
        if is_required:
            raise
        log.warning("store-lost", reason=error, note="starting without it")


async def _guard(
    store: RedisReservationStore,
    client: KubeClient,
    options: Options,
    metrics: Metrics,
    *,
    keys: Sequence[str],
) -> None:
    """Have the store sign its values, and count those that are not its own."""

    def note_corrupt(error: CorruptValue) -> None:
        log_corrupt(error)
        # The last part of the key, without the field: "berth:{default}:reservations[team/w/uid]".
        table = error.key.rpartition("}:")[2].partition("[")[0]
        fault = RowFault.UNSIGNED if error.is_unsigned else RowFault.CORRUPT
        metrics.store_ignored.labels(metrics.role, table, fault.value).inc()

    store.on_corrupt = note_corrupt
    if not keys:
        log.warning("store-not-signed", note="any client of Redis can forge its values; set --store-key")
        return
    cluster = options.cluster_id
    store.seal = Seal(keys, cluster=await cluster_identity(client) if cluster is None else cluster)
