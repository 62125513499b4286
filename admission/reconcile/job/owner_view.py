"""The view of an object of the table of owners: several pod sets, whose templates change with suspend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from admission.reconcile.job.context import JobContext
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.view import Prioritised, View
from api.jobs.job import ComposeError
from api.jobs.job_patches import start_injection
from api.jobs.job_workload import (
    Priority,
    annotation_problems,
    controller_reference,
    name_of_slice,
    workload_of_owner,
)
from api.jobs.owners.composing import (
    check_owner,
    expanded,
    is_equivalent,
    is_up_to_date,
    name_of_workload,
    pod_sets_body,
    read_pod_sets,
)
from api.jobs.owners.owner import Owner
from api.jobs.owners.patches import is_started, restore_patch_of, start_patch, suspend_patch
from api.jobs.owners.paths import Body, path_text, value_at
from api.jobs.owners.row import OwnerPodSet
from api.jobs.pod_template import Template, has_same_containers
from api.object_events import ObjectRef
from api.reasons import ConditionType
from api.workload import Workload


class OwnerView(View):
    """An owner, its own Workloads, and the context."""

    job: Owner

    def __init__(
        self,
        owner: Owner,
        raw: bytes,
        workloads: Sequence[tuple[Workload, bytes]],
        *,
        context: JobContext,
        now: float,
    ) -> None:
        self.kind = self.kind_key = owner.row.kind
        super().__init__(owner, raw, workloads, context=context, now=now)
        self.row = owner.row

    @property
    def ref(self) -> ObjectRef:
        """Return the reference to the owner, for Events."""
        job, row = self.job, self.row
        return ObjectRef(
            kind=row.kind, api_version=row.api_version, namespace=job.namespace, name=job.name, uid=job.uid
        )

    @property
    def owner_reference(self) -> dict[str, Any]:
        """Return the reference by which its Workload names it as controlling owner."""
        return controller_reference(self.row.api_version, self.row.kind, self.job)

    @property
    def workload_name(self) -> str:
        """Return the name of its Workload, or of the slice that it would get now."""
        if not self.is_elastic:
            return name_of_workload(self.job)
        row, suffixes = self.row, self.row.slice_suffixes(self.expanded) if self.own_pod_sets else ()
        name = name_of_slice(row.kind, row.group, self.job, *suffixes[:1])
        # By a slice that another has replaced, or that has quota for other numbers of pods.
        is_taken = any(
            one.workload.is_superseded or (one in self.live and one.assignments)
            for one in self.owned
            if one.workload.key.name == name
        )
        return name_of_slice(row.kind, row.group, self.job, *suffixes) if is_taken else name

    @property
    def may_be_elastic(self) -> bool:
        """Return whether objects of its kind may be elastic."""
        return self.row.may_be_elastic

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of pods by pod set that it asks for; {} if they cannot be read."""
        return {one.name: one.count for one in self.own_pod_sets}

    @property
    def in_use(self) -> Mapping[str, int]:
        """Return how many of its pods have been seen that run or have yet to end: it does not say so."""
        admitted = self.slices.admitted
        return {} if admitted is None else self.context.pods_in_use(admitted.workload.chain)

    @property
    def is_left_alone(self) -> bool:
        """Return whether it runs on what another object has, so that it is not queued at all."""
        return self.row.is_left_alone(self.body)

    @property
    def is_on_hold(self) -> bool:
        """Return whether its controller refuses to run it as it is, so that it needs no quota."""
        return self.job.is_on_hold

    @cached_property
    def expanded(self) -> Body:
        """Return it with what the objects that it refers to say of its pods. Raises ComposeError."""
        return expanded(self.row, self.body, self.context.read)

    @cached_property
    def own_pod_sets(self) -> tuple[OwnerPodSet, ...]:
        """Return its pod sets; () if they cannot be read, which its composition reports."""
        try:
            return read_pod_sets(self.row, self.expanded)
        except ComposeError:
            return ()

    def templates(self) -> tuple[Template, ...]:
        """Return its pod templates."""
        return tuple(one.template for one in self.own_pod_sets)

    @property
    def is_stopping(self) -> bool:
        """Return whether it is suspended and still has in its templates what a start has added.

        If its stop restores them in one write, this is so only where another program has suspended it.
        """
        source = self.match or (self.live[0] if len(self.live) == 1 else None)
        if not self.job.is_suspended or source is None:
            return False
        return is_started(self.row, self.body, self.own_pod_sets, _templates_of(source))

    @property
    def has_pods_ready(self) -> bool:
        """Return whether all of its pods are ready or have succeeded."""
        if self.own_pod_sets:
            return self.row.are_pods_ready(self.expanded)
        # Unknown for now, so the condition stays as it is.
        said = (
            self.match.workload.conditions.get(ConditionType.PODS_READY) if self.match is not None else None
        )
        return said is not None and said.status

    @property
    def reclaimable(self) -> Mapping[str, int]:
        """Return how many pods of each pod set need their quota no longer."""
        return self.row.reclaimable(self.expanded) if self.own_pod_sets else {}

    def is_match(self, held: HeldJob) -> bool:
        """Return whether the Workload still describes the owner."""
        # One whose pod sets cannot be read, because its runtime is gone, goes on: what it runs is admitted.
        if not self.own_pod_sets:
            return held.workload.is_admitted
        counts = {one.name: one.count for one in held.assignments}
        return is_equivalent(
            self.own_pod_sets, held.pod_sets, counts=counts, is_suspended=self.job.is_suspended
        )

    def has_same_templates(self, held: HeldJob) -> bool:
        """Return whether the pods that the Workload describes differ from the owner's in number at most."""
        theirs = _templates_of(held)
        return {one.name for one in self.own_pod_sets} == theirs.keys() and all(
            has_same_containers(one.queued, theirs[one.name]) for one in self.own_pod_sets
        )

    def is_up_to_date(self, held: HeldJob) -> bool:
        """Return whether a waiting Workload has also its labels, selectors and topology requests."""
        return not self.own_pod_sets or is_up_to_date(self.row, self.expanded, held.pod_sets)

    def check(self) -> None:
        """Raise ComposeError if the owner cannot be queued."""
        check_owner(self.row, self.expanded)

    def pod_sets(self) -> list[dict[str, Any]]:
        """Return the pod sets of its Workload. Raises ComposeError."""
        return pod_sets_body(self.row, self.expanded)

    def workload_body(self, priority: Priority) -> dict[str, Any]:
        """Return its Workload, ready for creation. Raises ComposeError."""
        return workload_of_owner(
            self.job,
            self.owner_reference,
            self.pod_sets(),
            priority,
            name=self.workload_name,
            copied=self.context.settings.copied,
        )

    def faults(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return annotations that cannot be read, and that an owner does not count this one."""
        pods = ((one.count, one.template) for one in self.own_pod_sets)
        yield "InvalidAnnotation", annotation_problems(self.job, pods, self.context.is_domain)
        if (note := self.uncounted_note) is not None:
            yield "OwnerNotCounted", (note,)

    def prioritised(self) -> Prioritised:
        """Return the class that its own field names, or the pod spec of the first template with one."""
        path = self.row.priority_class
        if path is not None and (name := value_at(self.body, path)):
            # As a pod spec: the field stands for the class of all of its pods.
            return Prioritised({"priorityClassName": name}, path_text(path[:-1]))
        specs = ((one.template.get("spec") or {}, one.at) for one in self.own_pod_sets)
        found = next(((spec, at) for spec, at in specs if spec.get("priorityClassName")), None)
        return Prioritised({}, "") if found is None else Prioritised(found[0], f"{path_text(found[1])}.spec")

    # --- start and stop ---------------------------------------------------------------------------

    def start(self, held: HeldJob) -> dict[str, Any] | None:
        """Return the patch that starts it as admitted. Raises StartConflict."""
        if not held.assignments or not self.own_pod_sets:
            # An admission without pod sets is incomplete: its writer has yet to complete it. So is an owner
            # whose pod sets cannot be read for now.
            return None
        injections = {
            one.name: start_injection(held.workload, one, *self.context.injection(one))
            for one in held.assignments
        }
        return start_patch(self.row, self.body, self.own_pod_sets, injections)

    def suspension(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that stops it, and restores its templates if that may be one write."""
        originals = {} if source is None else _templates_of(source)
        return suspend_patch(self.row, self.body, self.own_pod_sets, originals)

    def restoration(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that restores its templates."""
        originals = {} if source is None else _templates_of(source)
        return restore_patch_of(self.row, self.body, self.own_pod_sets, originals)


def _templates_of(held: HeldJob) -> dict[str, Template]:
    return {one.get("name", ""): one.get("template") or {} for one in held.pod_sets}
