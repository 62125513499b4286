"""The static addresses of Workloads: chosen once there is a place, and kept until the Workload is gone."""

from __future__ import annotations

from collections.abc import Mapping

from admission.cache.cache import Cache
from admission.engine.under_way import UnderWay
from admission.placement.topology.address_book import AddressSlot
from api.keys import ADDRESS
from api.workload import WorkloadKey


class StaticAddresses:
    """Chooses addresses. The Workload's annotation, which the caller writes, makes the choice durable."""

    def __init__(self, cache: Cache, under_way: UnderWay) -> None:
        self._cache = cache
        self._under_way = under_way

    def settle(self, key: WorkloadKey) -> Mapping[str, tuple[AddressSlot, ...]]:
        """Return the addresses of a Workload's pods by pod set, each with the hosts that it may be on.

        Those that it lacks are chosen now, by where its pods are placed. Empty for a Workload without places,
        and for one whose pods ask for no address.
        """
        held, book = self._cache.held.get(key), self._cache.topology_cache.addresses
        if held is None or not any(ADDRESS in place.per_pod for place in held.places):
            return {}
        names = [one.name for one in held.admission.pod_sets if one.topology is not None]
        chosen = {**book.reservations(key)}
        new: set[str] = set()
        for name, place in zip(names, held.places, strict=True):
            if ADDRESS in place.per_pod:
                domains = place.assignment.domains
                hosts = [one.values[-1] for one in domains for _ in range(one.count)]
                # Other pod sets of the Workload have theirs of the same pools.
                chosen[name] = book.choose(key, name, hosts, besides=new)
                new.update(chosen[name])
        if chosen != book.reservations(key):
            self._under_way.begin_change(self._cache.now)
            self._cache.topology_cache.reserve_addresses(key, chosen)
        return {name: tuple(map(book.slot, reserved)) for name, reserved in chosen.items()}
