"""The slices of elastic Jobs, by the first one, which all of their pods name.

The pods belong to the slice that is admitted, whichever that is. The first one may be gone while pods still
name it. Slices that have ended are not kept.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.controller.cluster_state.observers import WorkloadTransition
from api.workload import Workload, WorkloadKey


class SliceChains:
    """The slices that have not finished.

    `mark` is called for a Workload whose next step may depend on another slice or on a pod, and `mark_owner`
    with the uid of an elastic Job. `need_pods` is called once there is a slice.
    """

    def __init__(
        self,
        mark: Callable[[WorkloadKey], None],
        *,
        mark_owner: Callable[[str], None],
        need_pods: Callable[[], None],
    ) -> None:
        self._mark = mark
        self._mark_owner = mark_owner
        self._need_pods = need_pods
        self._slices: dict[WorkloadKey, dict[WorkloadKey, Workload]] = {}

    def observe(self, change: WorkloadTransition) -> None:
        """Take a change of a Workload, and mark the slice that it replaces."""
        before, after = change.before, change.after
        if after is None or not after.is_slice or after.is_finished:
            if before is not None and before.is_slice:
                self._forget(before)
            return
        self._need_pods()
        self._slices.setdefault(after.chain, {})[after.key] = after
        if after.replaces is not None and after.has_quota_reservation:
            self._mark(after.replaces)

    def _forget(self, workload: Workload) -> None:
        slices = self._slices.get(workload.chain)
        if slices is not None:
            slices.pop(workload.key, None)
            if not slices:
                del self._slices[workload.chain]

    def admitted(self, named: WorkloadKey) -> Workload | None:
        """Return the newest admitted slice of the chain that pods name; None if there is none."""
        found = [one for one in self._slices.get(named, {}).values() if one.is_admitted]
        return max(found, key=lambda one: (one.created_at, one.uid), default=None)

    def mark_pods_of(self, named: WorkloadKey) -> None:
        """Mark the Workload that pods name, and all slices of its chain."""
        self._mark(named)
        for key in self._slices.get(named, ()):
            self._mark(key)

    def mark_owners_of(self, named: WorkloadKey) -> None:
        """Mark the elastic Job whose pods name this Workload."""
        for uid in {one.owner_uid for one in self._slices.get(named, {}).values()}:
            if uid is not None:
                self._mark_owner(uid)
