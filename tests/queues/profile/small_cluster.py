"""A cluster small enough to work out a search by hand, as the stage and the trials of a profile.

One cohort of 8 devices, two queues of 4 that may borrow all, and four hosts of 2 devices each.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from math import inf

from api.queueing import ResourceQuota
from api.workload import WorkloadKey
from queues.profile.capacity_profile import CapacityProfile, Claim, Course, Rooms, Spot, Spots
from queues.profile.request_horizon import RequestHorizon
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource, Quantities

GPU = FlavorResource("f", "gpu")
HOSTS = tuple(("", (f"h{index}",)) for index in range(4))
PER_HOST = 2


def key(name: str) -> WorkloadKey:
    return WorkloadKey("ns", name)


def make_tree(*, nominal: int = 4) -> dict[str, QuotaNode]:
    root = QuotaNode("root", is_queue=False, quotas={}, weight_milli=1000)
    queues = {
        name: QuotaNode(name, is_queue=True, quotas={GPU: ResourceQuota(nominal=nominal)}, weight_milli=1000)
        for name in ("a", "b")
    }
    for node in queues.values():
        root.adopt(node)
    root.build()
    return queues


@dataclass
class Stage:
    """The tree and the hosts. `taken` is what is used of each host."""

    queues: dict[str, QuotaNode] = field(default_factory=make_tree)
    taken: dict[object, int] = field(default_factory=lambda: dict.fromkeys(HOSTS, 0))

    def charge(self, queue: str, usage: Quantities) -> None:
        node = self.queues[queue]
        node.add({pair: amount for pair, amount in usage.items() if amount > 0})
        node.remove({pair: -amount for pair, amount in usage.items() if amount < 0})

    def shift(self, queue: str, amounts: Quantities) -> None:
        for pair, amount in amounts.items():
            self.queues[queue].shift(pair, -amount)

    def occupy(self, spots: Spots) -> None:
        for spot, amounts in spots.items():
            self.taken[spot] += amounts["gpu"]

    def run(self, claim: Claim, sign: int = 1) -> None:
        self.charge(claim.queue, {pair: sign * amount for pair, amount in claim.usage.items()})
        self.occupy(
            {spot: {name: sign * amount for name, amount in one.items()} for spot, one in claim.spots.items()}
        )

    def usage(self) -> object:
        usage = {name: node.cell(GPU).usage for name, node in self.queues.items()}
        root = next(iter(self.queues.values())).root
        return usage, root.cell(GPU).usage, {spot: used for spot, used in self.taken.items() if used}


@dataclass(frozen=True)
class WholeHosts:
    """Room for pods that take a host each."""

    stage: Stage
    needed: int

    def total(self) -> int:
        return sum(self.at(spot, {}) for spot in HOSTS)

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        return self.stage.taken[spot] + change.get("gpu", 0) == 0

    def known(self, _spot: Spot, _stamp: object) -> Course | None:
        return None

    def note(self, _spot: Spot, _stamp: object, _course: Course) -> None:
        pass


@dataclass
class Trial:
    """`hosts` whole hosts, or with none `amount` devices without a place, for a queue."""

    stage: Stage
    queue: str
    amount: int
    hosts: int = 0

    def may_have_quota(self) -> bool:
        return self.stage.queues[self.queue].fits({GPU: self.amount})

    def rooms(self) -> Rooms:
        return [[WholeHosts(self.stage, self.hosts)]] if self.hosts else []

    def pairs_of(self, value: Claim) -> KeysView[FlavorResource]:
        return value.usage.keys()

    def spots_of(self, value: Claim) -> Spots:
        return value.spots

    def find(self) -> Claim | None:
        free = [spot for spot in HOSTS if self.stage.taken[spot] == 0][: self.hosts]
        if len(free) < self.hosts:
            return None
        claim = make_claim("new", self.queue, self.amount, hosts=[HOSTS.index(spot) for spot in free])
        return claim if self.has_quota(claim) and self.has_spots(claim) else None

    def has_quota(self, value: Claim) -> bool:
        return self.stage.queues[self.queue].fits(value.usage)

    def has_spots(self, value: Claim) -> bool:
        return all(self.stage.taken[spot] == 0 for spot in value.spots)


def make_claim(
    name: str,
    queue: str,
    amount: int,
    *,
    hosts: Iterable[int] = (),
    begins_at: float = -inf,
    ends_at: float = inf,
) -> Claim:
    return Claim(
        holder=key(name),
        queue=queue,
        usage={GPU: amount},
        spots={HOSTS[index]: {"gpu": PER_HOST} for index in hosts},
        begins_at=begins_at,
        ends_at=ends_at,
    )


def stage_and_profile(claims: Iterable[Claim]) -> tuple[Stage, CapacityProfile]:
    stage, profile = Stage(), CapacityProfile()
    for claim in claims:
        profile.put(claim)
        if claim.is_running:
            stage.run(claim)
    return stage, profile


def horizon_of(profile: CapacityProfile) -> RequestHorizon:
    """Return the horizon of a request for which all claims count."""
    return RequestHorizon(edges=profile.edges(), profile=profile)
