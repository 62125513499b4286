"""The fabrics that replicas of the scheduler extender have chosen for training jobs without a node.

Between kube-scheduler's choice of a node and the binding that the watch reports, the job's next pods may be
sent to another replica. The first choice counts for all of them: `SET NX` with an expiry, which is one
transition without a script. Nothing is lost with Redis but that agreement.
"""

from __future__ import annotations

from queues.store.redis_scripts import RedisScripts
from queues.store.seal import NotSigned


class FabricChoices(RedisScripts):
    """The choices of one shard. Raises StoreUnreachable and StoreRefused."""

    async def choose(self, namespace: str, job: str, fabric: str, *, seconds: float) -> str:
        """Return the fabric that the job was given first; this one if it had none, for that many seconds."""
        key = self._keys.fabric(namespace, job)
        value = self.seal.close(key, fabric.encode())
        milliseconds = int(seconds * 1000)
        answer = await self._send(("SET", key, value, "NX", "PX", milliseconds), seconds=self._call_seconds)
        # Between the two calls the other choice may have expired: then this one is as good.
        return fabric if answer else await self.chosen(namespace, job) or fabric

    async def chosen(self, namespace: str, job: str) -> str:
        """Return the fabric that the job was given; "" if none, or if another program wrote it."""
        key = self._keys.fabric(namespace, job)
        stored = await self._send(("GET", key), seconds=self._call_seconds)
        if stored is None:
            return ""
        try:
            return self.seal.open(key, stored).decode(errors="replace")
        except NotSigned:
            return ""
