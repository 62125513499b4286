"""Admission fair sharing: the LocalQueues of one ClusterQueue are served by their past usage.

Past usage is an exponential average of what is admitted. With the half-life h, after a step of d seconds:

    a(d)     = 1 - 0.5^(d / h)
    consumed = consumed · (1 - a(d)) + admitted · a(d)

The weights of old and new add up to one, so the average approaches the present usage and never
exceeds it. Two steps give the same result as one step of their combined length, so it does not matter
when a step is taken.

One step in five minutes is too rare to hold back a burst: an idle queue would have all its Workloads admitted
before the first of them is counted. Each Workload therefore counts from its decision on with what one step
would make of it (the entry penalty), which becomes consumption when the Workload is Admitted.

    usage(queue) = sum over resources of weight(r) · (consumed + penalties)(r), divided by the queue's weight

A queue of weight 0 has infinite usage: it goes last. With half-life 0 nothing is remembered.
All LocalQueues have a past usage; ClusterQueues with an admissionScope are ordered by it.

Consumption is counted in whole billionths of the resource's unit (cores, bytes, devices). Floats would drift
apart on equal histories, and their noise would then decide the order. Thousandths, which Kueue used at first,
lose a single GPU altogether: with a half-life of a week, five minutes count 0.0003 of it.
Source: Kueue, KEP 4136; pkg/util/admissionfairsharing; github.com/kubernetes-sigs/kueue/pull/13621.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp2, floor, inf

from api.parsing.quantities import CPU
from api.past_usage import PastUsage
from api.workload import WorkloadKey

LocalQueueKey = tuple[str, str]
Amounts = Mapping[str, int]
# The resources that the ClusterQueue of each LocalQueue covers.
Covered = Mapping[LocalQueueKey, Iterable[str]]

_NANOS = 10**9
# Above this many units a float cannot represent billionths, so whole units are counted.
_FINE_UNITS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """The settings. A resource without a weight has weight 1.

    Source: Kueue's Configuration, admissionFairSharing.
    """

    half_life_seconds: float = 0.0
    sampling_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)

    def share_of_new(self, elapsed_seconds: float) -> float:
        """Return the weight, from 0 to 1, of the present usage in a step of `elapsed_seconds`."""
        if self.half_life_seconds <= 0:
            # Half-life 0 neither remembers nor adds anything: only the weights of the queues count.
            return 0.0
        return 1.0 - exp2(-max(0.0, elapsed_seconds) / self.half_life_seconds)


@dataclass(slots=True)
class _Holding:
    local_queue: LocalQueueKey
    amounts: Amounts
    is_admitted: bool


@dataclass(slots=True)
class _Account:
    """One LocalQueue. `admitted` and `waiting` are sums over its Workloads that hold quota."""

    consumed: Amounts = field(default_factory=dict)
    # Whole Unix seconds; None: not known yet. The first step then has length 0.
    updated_at: int | None = None
    admitted: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)


class UsageLedger:
    """Past usage by LocalQueue. One task owns it; it reads no clock.

    It is notified of every Workload that holds quota (`hold`, `release`) and keeps penalties and consumption
    up to date. Its sums are integers, so they do not depend on the order of events.
    """

    def __init__(self, settings: AdmissionFairSharing) -> None:
        # Accounts are created by the first event of any kind: a LocalQueue may appear after its Workloads.
        self._settings = settings
        self._accounts: dict[LocalQueueKey, _Account] = {}
        self._holdings: dict[WorkloadKey, _Holding] = {}
        self._sampled_at: float | None = None

    # --- questions ---------------------------------------------------------------------------------------

    def usage(self, local_queue: LocalQueueKey, weight_milli: int) -> float:
        """Return the LocalQueue's usage, penalties included, divided by its weight; the lowest goes first.

        Infinite for weight 0; 0 for an unknown queue.
        """
        if weight_milli <= 0:
            return inf
        account = self._accounts.get(local_queue)
        if account is None:
            return 0.0
        # The weight of one step, equal for all waiting Workloads: admission turns it into consumption.
        penalty = self._settings.share_of_new(self._settings.sampling_seconds)
        weights = self._settings.resource_weights
        total = 0.0
        # Sorted by name, because a sum of floats depends on the order.
        for resource in sorted({*account.consumed, *account.waiting}):
            waiting = _to_units(resource, account.waiting.get(resource, 0)) * penalty
            used = account.consumed.get(resource, 0) / _NANOS + waiting
            total += weights.get(resource, 1.0) * used
        return total * 1000 / weight_milli

    def past_usage(self, local_queue: LocalQueueKey) -> PastUsage | None:
        """Return what has to survive a restart, None where nothing is known of the LocalQueue yet."""
        account = self._accounts.get(local_queue)
        if account is None or account.updated_at is None:
            return None
        return PastUsage(consumed=account.consumed, updated_at=account.updated_at)

    def next_sample_at(self) -> float:
        """Return when the next step is due (Unix seconds); in the past where none was taken yet."""
        return 0.0 if self._sampled_at is None else self._sampled_at + self._settings.sampling_seconds

    # --- changes -----------------------------------------------------------------------------------------

    def adopt(self, local_queue: LocalQueueKey, past: PastUsage) -> bool:
        """Take over what the LocalQueue's status says. Return whether that was newer than what is known.

        A new leader continues where the previous one stopped, and the controller's own writes change nothing
        when they are read back.
        """
        account = self._accounts.setdefault(local_queue, _Account())
        # An equal time is the controller's own write; an earlier one is a status read before a later step.
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
        """Record that a Workload of the LocalQueue holds quota. Return whether consumption has changed.

        Until it is admitted it counts as a penalty, which its admission turns into consumption. A Workload
        that was admitted when first seen had its penalty settled earlier.
        """
        known = self._holdings.get(workload)
        # The usual case: an update of the Workload without a change that matters here.
        if known == _Holding(local_queue, amounts, is_admitted):
            return False
        is_settled = known is not None and is_admitted and not known.is_admitted
        # Before the sums are changed: they still hold the old amounts, which a resize may have changed.
        self.release(workload)
        if is_settled:
            self._settle(local_queue, amounts, now)
        self._holdings[workload] = _Holding(local_queue, amounts, is_admitted)
        self._count(self._holdings[workload], sign=1)
        return is_settled

    def release(self, workload: WorkloadKey) -> bool:
        """Record that the Workload holds no quota any more. Return whether it did; its penalty is dropped."""
        known = self._holdings.pop(workload, None)
        if known is not None:
            self._count(known, sign=-1)
        return known is not None

    def forget(self, local_queue: LocalQueueKey) -> None:
        """Forget the consumption of a deleted LocalQueue. Its Workloads may still hold quota."""
        account = self._accounts.get(local_queue)
        if account is not None:
            # Only past consumption is dropped; the sums belong to Workloads that still hold quota.
            account.consumed, account.updated_at = {}, None

    def open(self, local_queues: Covered, *, now: float) -> list[LocalQueueKey]:
        """Begin the accounts of LocalQueues of which nothing is known yet; return these.

        `local_queues` has for each the resources that its ClusterQueue covers. They are listed from the
        beginning, with nothing used.
        """
        new = [key for key in local_queues if self.past_usage(key) is None]
        for key in new:
            self._step(self._accounts.setdefault(key, _Account()), now, local_queues[key])
        return new

    def sample(self, local_queues: Covered, *, now: float) -> None:
        """Take a step for each of these LocalQueues at `now` (Unix seconds); for the values see `open`."""
        self._sampled_at = now
        for key, covered in local_queues.items():
            self._step(self._accounts.setdefault(key, _Account()), now, covered)

    # --- within ------------------------------------------------------------------------------------------

    def _count(self, holding: _Holding, *, sign: int) -> None:
        account = self._accounts.setdefault(holding.local_queue, _Account())
        # A Workload counts as admitted or as waiting, never as both: its amount must not count twice.
        total = account.admitted if holding.is_admitted else account.waiting
        for resource, amount in holding.amounts.items():
            total[resource] = total.get(resource, 0) + sign * amount

    def _step(self, account: _Account, now: float, covered: Iterable[str] = ()) -> None:
        # Whole seconds, as the status stores them, so that a value read back is not newer. A clock behind
        # that of the previous step adds nothing twice.
        at = floor(now) if account.updated_at is None else max(floor(now), account.updated_at)
        new = self._settings.share_of_new(at - (at if account.updated_at is None else account.updated_at))
        # With half-life 0 the weight of new usage is 0 as well, so forgetting needs a case of its own.
        remembered = 0.0 if self._settings.half_life_seconds <= 0 else 1.0 - new
        stepped = {
            resource: _to_nanos(
                account.consumed.get(resource, 0) / _NANOS * remembered
                + _to_units(resource, account.admitted.get(resource, 0)) * new
            )
            for resource in sorted({*account.consumed, *account.admitted, *covered})
        }
        # Resources of which nothing is used are listed with 0, as in Kueue. Without a half-life none is.
        account.consumed = stepped if self._settings.half_life_seconds > 0 else {}
        account.updated_at = at

    def _settle(self, local_queue: LocalQueueKey, amounts: Amounts, now: float) -> None:
        """Turn a penalty into consumption, after averaging in what was held until now."""
        account = self._accounts.setdefault(local_queue, _Account())
        self._step(account, now)
        penalty = self._settings.share_of_new(self._settings.sampling_seconds)
        added = {name: _to_nanos(_to_units(name, amount) * penalty) for name, amount in amounts.items()}
        names = sorted({*account.consumed, *(name for name, nanos in added.items() if nanos)})
        account.consumed = {name: account.consumed.get(name, 0) + added.get(name, 0) for name in names}


def _to_units(resource: str, amount: int) -> float:
    """Return an amount in the resource's unit: CPU is counted in thousandths of a core."""
    return amount / 1000 if resource == CPU else float(amount)


def _to_nanos(units: float) -> int:
    # A float has 15 to 16 digits. Above a million units the last billionths are noise, which
    # would differ between two replicas.
    return round(units) * _NANOS if units >= _FINE_UNITS else round(units * _NANOS)
