"""When each node was last heard of: kubelets renew their Lease in kube-node-lease every ten seconds.

Kubernetes calls a node not ready after 50 s without a renewal, and leaves its pods there for 300 s more. A
policy (spec.placement.recovery.heartbeatSeconds) may have gangs leave such a node sooner. Time is measured by
this process's own clock from one version of the Lease to the next, so the nodes' clocks do not matter.

What is not heard may be this process's fault, and not the nodes': a watch that was cut or lags, a process
that was suspended. No node counts as quiet while many are, nor shortly after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from admission.controller.runtime.clock import Clock
from api.kube.informer import Change, ChangeType
from api.objects.common import NamedObject

# The interval in which a kubelet renews its Lease. Source: Kubernetes, nodeLeaseDurationSeconds / 4.
RENEWAL_SECONDS = 10.0
# After how long a node is quiet at the earliest: one renewal is missing, and is not merely late.
QUIET_SECONDS = 1.5 * RENEWAL_SECONDS
# If more than this share of the nodes is quiet, the watch is more likely at fault. One node is never many.
_MANY = 0.25
# A longer time between two checks means that this process did not run, and may have missed renewals.
_LONGEST_PAUSE_SECONDS = 5.0


class Heartbeats:
    """Which nodes are quiet. `report` gets the name of a node that falls quiet or is heard again."""

    def __init__(self, clock: Clock, report: Callable[[str], None]) -> None:
        self._clock = clock
        self._report = report
        # Set once a policy asks for it: most clusters need no watch of all nodes' Leases.
        self.needed = asyncio.Event()
        # Monotonic seconds by node. Those heard of longest ago come first, so a check reads only these.
        self._heard: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        # Those of `_quiet` that were reported: none while there may be another cause.
        self._reported: dict[str, float] = {}
        self._checked_at = clock.monotonic()
        self._trusted_from = 0.0

    def take(self, change: Change[NamedObject]) -> None:
        """Take a change of a node's Lease."""
        name = change.object.metadata.name
        self._heard.pop(name, None)
        self._quiet.pop(name, None)
        # The Lease goes with its node, whose own deletion is seen by the watch of nodes.
        if change.type is not ChangeType.DELETED:
            self._heard[name] = self._clock.monotonic()
        if self._reported.pop(name, None) is not None:
            self._report(name)

    def check(self) -> None:
        """Find the nodes that have fallen quiet. To be called about every second."""
        now = self._clock.monotonic()
        for name in self._fallen_quiet(now):
            self._quiet[name] = self._heard.pop(name)
        is_paused = now - self._checked_at > _LONGEST_PAUSE_SECONDS
        self._checked_at = now
        if is_paused or self._are_many_quiet:
            self._trusted_from = now + QUIET_SECONDS
        reported = dict(self._quiet) if now >= self._trusted_from else {}
        changed = reported.keys() ^ self._reported.keys()
        self._reported = reported
        for name in sorted(changed):
            self._report(name)

    def quiet_since(self, node: str) -> float | None:
        """Return since when nothing was heard of the node (Unix seconds); None where it is not quiet."""
        heard = self._reported.get(node)
        return None if heard is None else self._clock.now() - (self._clock.monotonic() - heard)

    def _fallen_quiet(self, now: float) -> list[str]:
        fallen = []
        for name, heard in self._heard.items():
            if now - heard < QUIET_SECONDS:
                break
            fallen.append(name)
        return fallen

    @property
    def _are_many_quiet(self) -> bool:
        quiet = len(self._quiet)
        return quiet > 1 and quiet > _MANY * (quiet + len(self._heard))
