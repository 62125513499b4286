"""Labels and annotations that a Workload copies from the Job or pod it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.reconcile.checkpoints import taken_over
from api import keys
from api.jobs.job_workload import CopiedKeys, copied_annotations, copied_labels
from api.jobs.queued_object import Queued
from api.workload import Workload


def changed_metadata(
    owner: Queued,
    workload: Workload,
    *,
    progress: Mapping[str, str],
    copied: CopiedKeys,
    now: float,
) -> dict[str, Any]:
    """Return the merge patch of the Workload's metadata that brings its copies up to date; {} if they are.

    `progress` are the annotations with the newest checkpoint: those of `owner`, or what its pods reported.
    `copied` are the configured keys. `now` is in Unix seconds.
    """
    labels = copied_labels(owner, copied)
    newer = taken_over(progress, workload.annotations, now=now)
    annotations: dict[str, str | None] = {**copied_annotations(owner, copied), **newer}
    if keys.ADMISSION_GATED_BY in workload.annotations:
        # A gate is opened by removing it from the owner.
        annotations.setdefault(keys.ADMISSION_GATED_BY, None)
    # Only differences: a Workload that is up to date costs no write.
    changed = {
        "labels": {key: value for key, value in labels.items() if workload.labels.get(key) != value},
        "annotations": {
            key: value for key, value in annotations.items() if workload.annotations.get(key) != value
        },
    }
    return {name: values for name, values in changed.items() if values}
