"""The merge patches that start an owner and stop it.

Most kinds of the table let their templates change in the same write that suspends or resumes them, unlike a
Job. So a start is one patch, and a stop is one: `suspend`, and all templates restored. A kind whose row has
`templates` of its own restores them in a second write. Source: Kueue, pkg/controller/jobframework (startJob,
stopJob) and pkg/podset.
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
    started = {
        one.name: merged(one.template, injection_patch(one.template, _injection(one, injections)))
        for one in pod_sets
    }
    if row.templates is not None:
        wanted = row.templates.inject(body, pod_sets, started)
    else:
        wanted = _with_templates(row, body, pod_sets, started)
    return merge_patch(body, replaced(wanted, row.suspend, False))


def suspend_patch(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> dict[str, Any]:
    """Return the patch that begins a stop: it restores the templates too, unless that takes its own write."""
    if row.templates is not None:
        return merge_patch(body, replaced(body, row.suspend, True))
    return restore_patch_of(row, body, pod_sets, originals)


def restore_patch_of(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> dict[str, Any]:
    """Return the patch that suspends an owner and restores its templates from those of its Workload.

    A pod set that the Workload lacks keeps its template: what it was is unknown.
    """
    if row.templates is not None:
        wanted = row.templates.restore(body, pod_sets, originals)
    else:
        wanted = _restored(row, body, pod_sets, originals)
    return merge_patch(body, replaced(wanted, row.suspend, True))


def is_started(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> bool:
    """Return whether a start has written into a template, other than its author did."""
    if row.templates is not None:
        return row.templates.is_started(body)
    return any(
        has_started(one.template) and not has_started(originals[one.name])
        for one in pod_sets
        if one.name in originals
    )


def _restored(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], originals: Mapping[str, Template]
) -> Body:
    restored = {
        one.name: _as_original(one.template, originals[one.name]) for one in pod_sets if one.name in originals
    }
    return _with_templates(row, body, pod_sets, restored)


def _as_original(template: Template, original: Template) -> Template:
    """Return the template as it was, without the empty objects that removing what a start added leaves."""
    patch = restore_patch(template, original, is_complete=True)
    if not patch:
        return template
    result: dict[str, Any] = merged(template, patch)
    for part in ("metadata", "spec"):
        fields, before = result.get(part) or {}, original.get(part) or {}
        result[part] = {name: value for name, value in fields.items() if value != {} or name in before}
    return {part: value for part, value in result.items() if value}


def _with_templates(
    row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet], templates: Mapping[str, Template]
) -> Body:
    for one in pod_sets:
        if (template := templates.get(one.name, one.template)) != one.template:
            body = row.with_template(body, one, template)
    return body


def _injection(pod_set: OwnerPodSet, injections: Mapping[str, Injection]) -> Injection:
    found = injections.get(pod_set.name)
    if found is None:
        raise StartConflict("pod set", pod_set.name, ", ".join(injections) or "none")
    return found
