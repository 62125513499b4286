"""A Workload that holds quota: what it was given, and how sure that is."""

from __future__ import annotations

import msgspec

from admission.placement.topology.place import Place
from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from api.reasons import ConditionType
from api.workload import Admission, Workload, WorkloadKey
from queues.pending.pending_queue import LocalQueueKey
from queues.quota.resources import FlavorResource, Quantities


class HeldWorkload(msgspec.Struct, eq=False, kw_only=True):
    """A Workload that holds quota: by its object, or *assumed*, decided but not yet seen in the object.

    `is_evicting` is set from the decision to evict until the object has the condition Evicted. `former` is
    the admission that the object still shows while replacements for lost nodes have been decided. `pairs` are
    the flavors and resources that it has been given, those of zero amount included. `places` are the nodes of
    its pods that were placed by topology. `leaves_by` is the deadline (Unix seconds) up to which its eviction
    waits for a checkpoint, decided or recorded in its object (`is_saving`); None where no eviction waits.
    """

    workload: Workload
    admission: Admission
    usage: Quantities
    is_assumed: bool
    reserved_at: float
    queued_at: float
    pairs: frozenset[FlavorResource]
    places: tuple[Place, ...] = ()
    is_evicting: bool = False
    former: Admission | None = None
    leaves_by: float | None = None
    is_saving: bool = False
    # The checkpoint facts, with and without aliases, and the version of the Workload they were read from.
    _facts: tuple[Workload, dict[bool, CheckpointFacts]] | None = None

    @property
    def key(self) -> WorkloadKey:
        """The Workload's key."""
        return self.workload.key

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that it was submitted to."""
        return self.workload.key.namespace, self.workload.queue_name

    @property
    def is_evicted(self) -> bool:
        """Whether it is evicted, is about to be, or will be once it has saved a checkpoint."""
        return self.is_evicting or self.is_saving or (not self.is_assumed and self.workload.is_evicted)

    def facts(self, *, with_aliases: bool = False) -> CheckpointFacts:
        """Return what its annotations report about its checkpoints.

        With `with_aliases` the annotations of other tools count as well, which a policy may allow.
        """
        # Cached: every search asks this of every candidate, and one version always has the same answer.
        if self._facts is None or self._facts[0] is not self.workload:
            self._facts = self.workload, {}
        read = self._facts[1]
        if with_aliases not in read:
            read[with_aliases] = checkpoint_facts(self.workload, with_aliases=with_aliases)
        return read[with_aliases]

    @property
    def is_admitted(self) -> bool:
        """Whether its object has the condition Admitted, so that its Job may run."""
        return not self.is_assumed and self.workload.is_true(ConditionType.ADMITTED)
