"""The pod sets of an owner's Workload, and whether a Workload still describes its owner.

A cluster may run without webhooks, so what they would reject is rejected here too, by a ComposeError.
Source: Kueue, pkg/controller/jobframework (EquivalentToWorkload) and pkg/util/equality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.jobs.job import ComposeError
from api.jobs.job_workload import workload_name
from api.jobs.owners.owner import Owner
from api.jobs.owners.paths import Body, path_text
from api.jobs.owners.row import OwnerKind, OwnerPodSet, Read
from api.jobs.owners.rules import kind_errors, owner_errors
from api.jobs.pod_template import (
    has_same_containers,
    has_same_directives,
    has_same_tolerations,
    resource_faults,
    sanitised,
)
from api.jobs.topology_request import topology_request_body
from api.objects.templates import WirePodTemplate

WirePodSets = Sequence[Mapping[str, Any]]


def name_of_workload(owner: Owner) -> str:
    """Return the name of the Workload of this owner."""
    return workload_name(owner.row.kind, owner.row.group, owner.name, owner.uid)


def expanded(row: OwnerKind, body: Body, read: Read) -> Body:
    """Return an object with what the objects that it refers to say of its pods. Raises ComposeError."""
    if row.expand is None:
        return body
    try:
        return row.expand(body, read)
    except (AttributeError, KeyError, TypeError) as error:
        raise ComposeError(f"its pod sets cannot be read: {error!r}; correct its spec") from error


def read_pod_sets(row: OwnerKind, body: Body) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of an object of this kind. Raises ComposeError if they cannot be read."""
    try:
        found = row.pod_sets(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ComposeError(f"its pod sets cannot be read: {error!r}; correct its spec") from error
    for one in found:
        if type(one.count) is not int:
            said = f"the number of pods of {one.name} is {one.count!r}, but must be a whole number"
            raise ComposeError(f"its pod sets cannot be read: {said}; correct its spec")
        # Its definition may keep whatever a user writes, and the API server looks into no template.
        try:
            msgspec.convert(one.template, type=WirePodTemplate)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ComposeError(
                f"{path_text(one.at)} cannot be read: {error}; correct the pod template"
            ) from error
    return found


def check_owner(row: OwnerKind, body: Body) -> None:
    """Raise ComposeError with all faults of an owner that cannot be queued; do nothing for a valid one."""
    faults = [str(error) for error in kind_errors(row, body)]
    if faults:
        # What its kind lacks explains more than what else follows from that.
        raise ComposeError("; ".join(faults))
    pod_sets = read_pod_sets(row, body)
    faults += [str(error) for error in owner_errors(row, body, pod_sets)]
    faults += [fault for one in pod_sets for fault in resource_faults(one.queued, path_text(one.at))]
    if not any(one.count for one in pod_sets):
        faults.append("it asks for no pods; give it at least one")
    if faults:
        raise ComposeError("; ".join(faults))


def pod_sets_body(row: OwnerKind, body: Body) -> list[dict[str, Any]]:
    """Return spec.podSets of the Workload of this object. Raises ComposeError."""
    # The following steps assume templates that the API server would accept.
    check_owner(row, body)
    return [_pod_set_body(one) for one in read_pod_sets(row, body)]


def is_equivalent(
    pod_sets: Sequence[OwnerPodSet], others: WirePodSets, *, counts: Mapping[str, int], is_suspended: bool
) -> bool:
    """Return whether a Workload's pod sets (as in spec.podSets) still describe the owner.

    `counts` are the numbers of pods by pod set that it was admitted with; empty while it is not admitted. A
    running owner has the admitted numbers; a suspended one has either those or the numbers in its own spec.
    Tolerations are not compared after admission, because the start adds those of the flavors.
    """
    return len(pod_sets) == len(others) and all(
        _is_same(one, other, counts.get(one.name), is_suspended=is_suspended)
        for one, other in zip(pod_sets, others, strict=True)
    )


def is_up_to_date(row: OwnerKind, body: Body, others: WirePodSets) -> bool:
    """Return whether a pending Workload also has the labels, node selectors and topology requests."""
    try:
        wanted = pod_sets_body(row, body)
    except ComposeError:
        # The edited owner cannot be queued, so the Workload stays as it is.
        return True
    return all(
        one.get("topologyRequest") == other.get("topologyRequest")
        and has_same_directives(one["template"], other.get("template") or {}, is_complete=True)
        for one, other in zip(wanted, others, strict=True)
    )


def _is_same(one: OwnerPodSet, other: Mapping[str, Any], admitted: int | None, *, is_suspended: bool) -> bool:
    counts = {int(other.get("count", 1))}
    if admitted is not None:
        counts = {admitted} | (counts if is_suspended else set())
    theirs = other.get("template") or {}
    return (
        one.name == other.get("name")
        and one.count in counts
        and has_same_containers(one.queued, theirs)
        and (admitted is not None or has_same_tolerations(one.template, theirs))
    )


def _pod_set_body(one: OwnerPodSet) -> dict[str, Any]:
    body: dict[str, Any] = {"name": one.name, "count": one.count, "template": sanitised(one.queued)}
    rank = {
        "podIndexLabel": one.index_label,
        "subGroupIndexLabel": one.group_label,
        "subGroupCount": one.groups,
    }
    known = {field: value for field, value in rank.items() if value is not None}
    annotations = (one.template.get("metadata") or {}).get("annotations") or {}
    # The ranks are known even if no topology is requested: its flavor may place the pods all the same.
    request = {**(topology_request_body(annotations, rank={}) or {}), **known}
    return {**body, **({"topologyRequest": request} if request else {})}
