"""A process that leads, to be frozen and woken: `python -m tests.api.kube.frozen_leader URL`.

Prints a line when it begins to lead, and when it notices that it was frozen: the seconds that its
lease had left at that moment, before any other code ran.
"""

from __future__ import annotations

import asyncio
import sys
import time

from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.kubeconfig import Endpoint
from api.kube.leadership import Leadership, LeaseTiming
from api.kube.lease import Elector, LeaseLock


async def lead(leadership: Leadership) -> None:
    """Look at the clock and at the lease, again and again."""
    # Read before the line is printed, because the test may freeze the process right after it.
    before = time.monotonic()
    print(f"leading {leadership.fence}", flush=True)
    while True:
        try:
            await asyncio.sleep(0.01)
        finally:
            # Also where the elector woke first and has cancelled us.
            if time.monotonic() - before > 1.0:
                print(f"woken {leadership.remaining_seconds()}", flush=True)
        before = time.monotonic()


async def main(url: str) -> None:
    """Run as a candidate until the process is ended."""
    endpoint = Endpoint(server=url, origin="the test", credentials=FixedCredentials())
    async with KubeClient(endpoint) as client:
        elector = Elector(
            client,
            LeaseLock(name="berth-main", namespace="berth-system", identity="frozen"),
            LeaseTiming(duration_seconds=2.0, renew_seconds=0.1, deadline_seconds=1.0),
        )
        await elector.run(lead)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
