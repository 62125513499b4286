"""Admission fair sharing: the LocalQueues of one ClusterQueue take turns by what they have used so far.

Past usage is an exponential average of what is admitted. With the half-life h, after a step of d seconds:

    a(d)     = 1 - 0.5^(d / h)
    consumed = consumed · (1 - a(d)) + admitted · a(d)

The weights of old and new add up to one, so that the average runs towards what is held and never beyond it;
and two steps give what one of their length gives, so that it does not matter when a step is taken.

One step in five minutes is too rare to hold back a burst: a queue that used nothing would have all its
Workloads admitted before the first of them shows. So a Workload weighs on its queue from the decision on, by
what one step would make of it (the entry penalty), and when it is Admitted that turns into consumption.

    usage(queue) = sum over resources of weight(r) · (consumed + penalties)(r), divided by the queue's weight

A queue of weight 0 has used infinitely much: it goes last. Half-life 0 remembers nothing.

Consumption is counted in whole billionths of the resource's unit (cores, bytes, devices). Floats would drift
apart on equal histories, and the order would then fall by their noise; thousandths, which Kueue began with,
lose a single GPU altogether, as five minutes in a half-life of a week are worth 0.0003 of it.
Source: Kueue, KEP 4136; pkg/util/admissionfairsharing; github.com/kubernetes-sigs/kueue/pull/13621.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp2, floor, inf

from api.parsing.quantities import CPU
from api.past_usage import PastUsage
from api.workload import WorkloadKey

LocalQueueKey = tuple[str, str]
Amounts = Mapping[str, int]

_NANOS = 10**9
# Beyond so many units a float tells no billionths apart, so whole units are counted.
_FINE_UNITS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """The settings. A resource without a weight counts 1.

    Source: Kueue's Configuration, admissionFairSharing.
    """

    half_life_seconds: float = 0.0
    sampling_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)

    def share_of_new(self, elapsed_seconds: float) -> float:
        """Return how much of the average a step of so many seconds makes up, from 0 to 1."""
        if self.half_life_seconds <= 0:
            # Half-life 0 remembers nothing and takes in nothing: queues then take turns by weight alone.
            return 0.0
        return 1.0 - exp2(-max(0.0, elapsed_seconds) / self.half_life_seconds)


@dataclass(slots=True)
class _Holding:
    local_queue: LocalQueueKey
    amounts: Amounts
    is_admitted: bool


@dataclass(slots=True)
class _Account:
    """What is known of one LocalQueue. `admitted` and `waiting` are the sums over those that hold quota."""

    consumed: Amounts = field(default_factory=dict)
    # None: not known yet. The first step then has no length.
    updated_at: int | None = None
    admitted: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)


class UsageLedger:
    """Past usage by LocalQueue. One task owns it; it reads no clock.

    Told of everybody who holds quota (`hold`, `release`), it keeps penalties and consumption up to date. Its
    sums are integers, so that they do not depend on the order of events.
    """

    def __init__(self, settings: AdmissionFairSharing) -> None:
        # Made by the first event of whatever kind: the LocalQueue object may come after its Workloads.
        self._settings = settings
        self._accounts: dict[LocalQueueKey, _Account] = {}
        self._holdings: dict[WorkloadKey, _Holding] = {}
        self._sampled_at: float | None = None

    # --- questions ---------------------------------------------------------------------------------------

    def usage(self, local_queue: LocalQueueKey, weight_milli: int) -> float:
        """Return what the LocalQueue has used, penalties included, by its weight; least goes first.

        Infinite for weight 0. A queue that is not known has used nothing.
        """
        if weight_milli <= 0:
            return inf
        account = self._accounts.get(local_queue)
        if account is None:
            return 0.0
        # One step's worth, the same for all that wait: what admission will turn it into.
        penalty = self._settings.share_of_new(self._settings.sampling_seconds)
        weights = self._settings.resource_weights
        total = 0.0
        # In order of name: a sum of floats depends on it.
        for resource in sorted({*account.consumed, *account.waiting}):
            waiting = _to_units(resource, account.waiting.get(resource, 0)) * penalty
            used = account.consumed.get(resource, 0) / _NANOS + waiting
            total += weights.get(resource, 1.0) * used
        return total * 1000 / weight_milli

    def past_usage(self, local_queue: LocalQueueKey) -> PastUsage | None:
        """Return what is to be kept of the LocalQueue across restarts, None where nothing is known yet."""
        account = self._accounts.get(local_queue)
        if account is None or account.updated_at is None:
            return None
        return PastUsage(consumed=account.consumed, updated_at=account.updated_at)

    def next_sample_at(self) -> float:
        """Return when the next step is due, in Unix seconds: in the past where none was taken yet."""
        return 0.0 if self._sampled_at is None else self._sampled_at + self._settings.sampling_seconds

    # --- changes -----------------------------------------------------------------------------------------

    def adopt(self, local_queue: LocalQueueKey, past: PastUsage) -> bool:
        """Take in what the LocalQueue's status says. Returns whether that was newer than what is known.

        So a new leader goes on where the one before it stopped, and our own writes, when they come back,
        change nothing.
        """
        account = self._accounts.setdefault(local_queue, _Account())
        # Equal is our own write coming back; older is a status that was read before a later step.
        if account.updated_at is not None and past.updated_at <= account.updated_at:
            return False
        account.consumed, account.updated_at = past.consumed, past.updated_at
        return True

    def hold(
        self,
        workload: WorkloadKey,
        local_queue: LocalQueueKey,
        amounts: Amounts,
        *,
        is_admitted: bool,
        now: float,
    ) -> bool:
        """Note that a Workload of the LocalQueue holds quota. Returns whether consumption has changed.

        Until it is admitted it weighs as a penalty; the step from one to the other settles that. One that was
        admitted when it was first seen has been settled before our time.
        """
        known = self._holdings.get(workload)
        # Seen again without a change, which is the usual case: every update of the Workload comes by here.
        if known == _Holding(local_queue, amounts, is_admitted):
            return False
        is_settled = known is not None and is_admitted and not known.is_admitted
        # Before the sums are touched: they still count the old amounts, which a resized Workload has changed.
        self.release(workload)
        if is_settled:
            self._settle(local_queue, amounts, now)
        self._holdings[workload] = _Holding(local_queue, amounts, is_admitted)
        self._count(self._holdings[workload], sign=1)
        return is_settled

    def release(self, workload: WorkloadKey) -> bool:
        """Note that the Workload holds no quota any more. Returns whether it did; a penalty is forgiven."""
        known = self._holdings.pop(workload, None)
        if known is not None:
            self._count(known, sign=-1)
        return known is not None

    def forget(self, local_queue: LocalQueueKey) -> None:
        """Forget what a LocalQueue that was deleted has consumed; its Workloads may still hold quota."""
        account = self._accounts.get(local_queue)
        if account is not None:
            # Only the past goes with the queue; the sums belong to Workloads that go on holding quota.
            account.consumed, account.updated_at = {}, None

    def sample(self, local_queues: list[LocalQueueKey], *, now: float) -> None:
        """Take a step with each of the LocalQueues."""
        self._sampled_at = now
        for key in local_queues:
            self._step(self._accounts.setdefault(key, _Account()), now)

    # --- within ------------------------------------------------------------------------------------------

    def _count(self, holding: _Holding, *, sign: int) -> None:
        account = self._accounts.setdefault(holding.local_queue, _Account())
        # Either admitted or waiting, never both: the same amount must not weigh twice.
        total = account.admitted if holding.is_admitted else account.waiting
        for resource, amount in holding.amounts.items():
            total[resource] = total.get(resource, 0) + sign * amount

    def _step(self, account: _Account, now: float) -> None:
        # Whole seconds, as the status keeps them: what comes back from there is then no news. A clock that
        # lags behind the one before it adds nothing twice.
        at = floor(now) if account.updated_at is None else max(floor(now), account.updated_at)
        new = self._settings.share_of_new(at - (at if account.updated_at is None else account.updated_at))
        # With half-life 0 the share of new is 0 as well, so forgetting has to be said by itself.
        remembered = 0.0 if self._settings.half_life_seconds <= 0 else 1.0 - new
        stepped = {
            resource: _to_nanos(
                account.consumed.get(resource, 0) / _NANOS * remembered
                + _to_units(resource, account.admitted.get(resource, 0)) * new
            )
            for resource in sorted({*account.consumed, *account.admitted})
        }
        # Zeros are left out, so that a status becomes empty again and is equal to one that never was used.
        account.consumed = {resource: nanos for resource, nanos in stepped.items() if nanos}
        account.updated_at = at

    def _settle(self, local_queue: LocalQueueKey, amounts: Amounts, now: float) -> None:
        """Turn a penalty into consumption. What was held before is averaged first: it was held till now."""
        account = self._accounts.setdefault(local_queue, _Account())
        self._step(account, now)
        penalty = self._settings.share_of_new(self._settings.sampling_seconds)
        added = {name: _to_nanos(_to_units(name, amount) * penalty) for name, amount in amounts.items()}
        names = sorted({*account.consumed, *(name for name, nanos in added.items() if nanos)})
        account.consumed = {name: account.consumed.get(name, 0) + added.get(name, 0) for name in names}


def _to_units(resource: str, amount: int) -> float:
    """Return an amount in the resource's unit: quota counts CPU in thousandths of a core."""
    return amount / 1000 if resource == CPU else float(amount)


def _to_nanos(units: float) -> int:
    # A float keeps 15 to 16 digits: above a million units the last billionths are noise, and noise
    # would differ between two replicas.
    return round(units) * _NANOS if units >= _FINE_UNITS else round(units * _NANOS)
