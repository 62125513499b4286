"""The merge patches that start an owner and stop it.

The kinds of the table let their templates change in the same write that suspends or resumes them, unlike a
Job. So a start is one patch, and a stop is one: `suspend`, and all templates restored. Source: Kueue,
pkg/controller/jobframework (startJob, stopJob) and pkg/podset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.jobs.owners.paths import Body, merged, replaced
from api.jobs.owners.row import OwnerKind, OwnerPodSet
from api.jobs.pod_template import (
    Injection,
    StartConflict,
    Template,
    has_started,
    injection_patch,
    merge_patch,
    restore_patch,
)


def start_patch(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], injections: Mapping[str, Injection]
) -> dict[str, Any]:
    """Return the patch that starts an owner with what its admission adds to each pod set.

    Raises StartConflict if a template contradicts its admission, or a pod set has none.
    """
    changes = {one.name: injection_patch(one.template, _injection(one, injections)) for one in pod_sets}
    wanted = _with_templates(row, body, pod_sets, changes)
    return merge_patch(body, replaced(wanted, row.suspend, False))


def stop_patch(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> dict[str, Any]:
    """Return the patch that suspends an owner and restores its templates from those of its Workload.

    A pod set that the Workload lacks keeps its template: what it was is unknown.
    """
    wanted = _restored(row, body, pod_sets, originals)
    return merge_patch(body, replaced(wanted, row.suspend, True))


def is_started(pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]) -> bool:
    """Return whether a start has written into a template, other than its author did."""
    return any(
        has_started(one.template) and not has_started(originals[one.name])
        for one in pod_sets
        if one.name in originals
    )


def _restored(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> Body:
    changes = {
        one.name: restore_patch(one.template, originals[one.name], is_complete=True)
        for one in pod_sets
        if one.name in originals
    }
    return _with_templates(row, body, pod_sets, changes)


def _with_templates(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], changes: Mapping[str, dict[str, Any]]
) -> Body:
    for one in pod_sets:
        if change := changes.get(one.name):
            body = row.with_template(body, one, merged(one.template, change))
    return body


def _injection(pod_set: OwnerPodSet, injections: Mapping[str, Injection]) -> Injection:
    found = injections.get(pod_set.name)
    if found is None:
        raise StartConflict("pod set", pod_set.name, ", ".join(injections) or "none")
    return found
