"""Annotations that a Workload goes on copying from the Job or pod it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.reconcile.checkpoints import taken_over
from api import keys
from api.jobs.job_workload import NO_KEYS, copied_annotations
from api.jobs.queued_object import Queued
from api.workload import Workload


def changed_metadata(
    owner: Queued, workload: Workload, *, progress: Mapping[str, str], now: float
) -> dict[str, Any]:
    """Return the merge patch of the Workload's metadata that brings its copies up to date; {} if they are.

    `progress` are the annotations with the newest checkpoint: those of `owner`, or what its pods reported.
    `now` is in Unix seconds. The configured keys are copied at the creation only, as in Kueue.
    """
    newer = taken_over(progress, workload.annotations, now=now)
    annotations: dict[str, str | None] = {**copied_annotations(owner, NO_KEYS), **newer}
    # A gate is opened by removing it from the owner, and so is a dependency.
    for key in (keys.ADMISSION_GATED_BY, keys.DEPENDS_ON):
        if key in workload.annotations:
            annotations.setdefault(key, None)
    # Only differences: a Workload that is up to date costs no write.
    changed = {key: value for key, value in annotations.items() if workload.annotations.get(key) != value}
    return {"annotations": changed} if changed else {}
