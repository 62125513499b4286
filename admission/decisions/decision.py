"""What was decided: the values that leave the core and are carried out by the shell.

Every decision names the Workload, the version it saw and its reason, in words for machines and for people;
log lines, events and metrics of a decision are made from these values alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from api.reasons import EvictionReason, PendingReason, PreemptionReason
from api.workload import Admission, TopologyAssignment, WorkloadKey
from queues.profile.planned_start import PlannedStart


class DecisionId(NamedTuple):
    """Which decision: on which Workload, in which of its lives, and made on which version of it.

    Two decisions on one Workload differ by the version, so that taking back the first never takes back the
    second.
    """

    key: WorkloadKey
    uid: str
    resource_version: str


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Give the Workload its quota. `is_admitted` False: reserved only, admission checks are outstanding.

    `checks` are the names of the admission checks that the chosen flavors require.
    `waited_seconds` counts from the queue timestamp (creation, or the last requeue).
    `strategy` is how its place in a topology was sought, empty without one. `on_lease`: it runs ahead of a
    promised start and gives way to it.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    admission: Admission
    is_admitted: bool
    checks: tuple[str, ...] = ()
    waited_seconds: float = 0.0
    borrows: bool = False
    strategy: str = ""
    on_lease: bool = False

    @property
    def id(self) -> DecisionId:
        """Which decision this is."""
        return DecisionId(self.key, self.uid, self.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Take a running (or reserving) Workload's quota back, in two phases: it stops first.

    `cluster_queue` is the victim's, `preempting_cluster_queue` that of the Workload it gives way to. With
    `save_by` the victim is waited for until then, to save a checkpoint, and asked for one from `ask_at` on
    (Unix seconds); None: it stops at once. `grace_seconds`: it saves at SIGTERM, and its pods have so long.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    reason: EvictionReason
    message: str
    preemption_reason: PreemptionReason | None = None
    preemptor: WorkloadKey | None = None
    preemptor_uid: str = ""
    preempting_cluster_queue: str = ""
    cluster_queue: str = ""
    underlying_cause: str = ""
    save_by: float | None = None
    ask_at: float | None = None
    grace_seconds: float | None = None

    @property
    def id(self) -> DecisionId:
        """Which decision this is."""
        return DecisionId(self.key, self.uid, self.resource_version)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the Workload why it does not run. Written only where reason or message have changed.

    `requests` are the computed requests by pod set (status.resourceRequests). `strategy` is how a place was
    sought in vain, empty where that is not the reason.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    reason: PendingReason
    message: str
    requests: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    is_parked: bool = False
    strategy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Give the pods of lost nodes other ones; those that live stay where they are, and the quota is the same.

    `assignments` are the new ones by pod set, of the pod sets that change. `lost` are the nodes that failed,
    none where the pods get their first places; `found` are those that pods were added to.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    assignments: Mapping[str, TopologyAssignment]
    lost: tuple[str, ...]
    found: tuple[str, ...]

    @property
    def id(self) -> DecisionId:
        """Which decision this is."""
        return DecisionId(self.key, self.uid, self.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreplaced:
    """No room for the pods of lost nodes, and the Workload is to wait for some: it keeps what it has."""

    key: WorkloadKey
    uid: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Tell the Workload when it is promised to start. `planned` None: it is promised nothing any more.

    `former` is what it was told before, None where this is the first.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    planned: PlannedStart | None
    former: PlannedStart | None = None


Decision = Admit | Evict | Wait | Plan
# What the second pass decides about Workloads that have lost nodes.
SecondPassDecision = Reassign | Evict | Unreplaced
