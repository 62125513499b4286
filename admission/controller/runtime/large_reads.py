"""Reads of much state, such as all pending Workloads, without holding up the event loop that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from admission.controller.runtime import yield_budget
from admission.controller.runtime.clock import Clock

_T = TypeVar("_T")


class LargeReads:
    """Reads in slices of time, one slice at a time for all who share this object.

    Without turns a hundred requests at once would run a hundred slices before the loop gets to the lease.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # It is given to those who wait in the order in which they came.
        self._turn = asyncio.Lock()

    async def collect(self, values: Iterable[_T]) -> list[_T]:
        """Return all values, each of which is computed as it is asked for.

        State may change between two slices, so `values` must not iterate over what others change.
        """
        iterator, found, has_more = iter(values), list[_T](), True
        while has_more:
            async with self._turn:
                # By time and not by number: the costs of two values may differ by a factor of a thousand.
                until = self._clock.monotonic() + yield_budget.SLICE_SECONDS
                has_more = False
                for value in iterator:
                    found.append(value)
                    if self._clock.monotonic() > until:
                        has_more = True
                        break
                # With the turn kept: no other read may begin in this round of the event loop.
                await asyncio.sleep(0)
        return found


async def encoded(reads: LargeReads, items: Iterable[object]) -> list[msgspec.Raw]:
    """Return the JSON of each item, which is built and encoded in the slices of `reads`."""
    return [msgspec.Raw(one) for one in await reads.collect(map(msgspec.json.encode, items))]
