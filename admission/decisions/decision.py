"""What was decided: the values that leave the core and are carried out by the shell.

Every decision names the Workload, the version it saw and its reason, as a machine-readable word and as a
message. Log lines, events and metrics of a decision are made from these values alone.
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
    """Identity of a decision: on which Workload, of which uid, and made on which version of it.

    Two decisions on one Workload differ by the version, so taking back the first never takes back the second.
    """

    key: WorkloadKey
    uid: str
    resource_version: str


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Give the Workload its quota. `is_admitted` False: reserved only, admission checks are outstanding.

    `checks` are the names of the admission checks that the chosen flavors require.
    `waited_seconds` counts from the queue timestamp (creation, or the last requeue).
    `strategy` is the placement strategy of its topology, empty without one. `on_lease`: it runs ahead of a
    promised start and is preempted by it. `quota` is the digest of the quota that it was checked against.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    admission: Admission
    is_admitted: bool
    quota: str = ""
    checks: tuple[str, ...] = ()
    waited_seconds: float = 0.0
    borrows: bool = False
    strategy: str = ""
    on_lease: bool = False

    @property
    def id(self) -> DecisionId:
        """The identity of this decision."""
        return DecisionId(self.key, self.uid, self.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Take back the quota of a running (or reserving) Workload, in two phases: its Job stops first.

    `cluster_queue` is the victim's, `preempting_cluster_queue` that of the preemptor. With `save_by`
    the eviction waits until then for the victim to save a checkpoint, which is requested from
    `ask_at` on (Unix seconds); None: it stops at once. `grace_seconds`: it saves at SIGTERM, and its
    pods get this grace period.
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
        """The identity of this decision."""
        return DecisionId(self.key, self.uid, self.resource_version)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Record on the Workload why it does not run. Written only where reason or message have changed.

    `requests` are the computed requests by pod set (status.resourceRequests). `strategy` is the placement
    strategy that found no place, empty where placement is not the reason. `is_preemption_gated`: its
    preemption gates hold back the evictions that it needs.
    """

    key: WorkloadKey
    uid: str
    reason: PendingReason
    message: str
    requests: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    strategy: str = ""
    is_preemption_gated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Replace the lost nodes of a Workload; its live pods stay where they are, and its quota is unchanged.

    `assignments` are the new ones by pod set, for the pod sets that change. `lost` are the nodes that failed,
    empty where the pods get their first places; `found` are the nodes that pods were added to.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    assignments: Mapping[str, TopologyAssignment]
    lost: tuple[str, ...]
    found: tuple[str, ...]

    @property
    def id(self) -> DecisionId:
        """The identity of this decision."""
        return DecisionId(self.key, self.uid, self.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreplaced:
    """There is no room for the pods of lost nodes; the Workload keeps what it has and waits for room."""

    key: WorkloadKey
    uid: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Record on the Workload when it is promised to start. `planned` None: it is no longer promised a start.

    `former` is the start that was recorded before, None where this is the first.
    """

    key: WorkloadKey
    uid: str
    planned: PlannedStart | None
    former: PlannedStart | None = None


Decision = Admit | Evict | Wait | Plan
# What the second pass decides about Workloads that have lost nodes.
SecondPassDecision = Reassign | Evict | Unreplaced
