"""Jobs and objects of the table of owners, as a tenant may write them: a Workload, or a sentence.

No CRD of ours keeps nonsense out of them: their own controllers may not even be installed.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec

from admission.reconcile.job.context import JobContext
from admission.reconcile.job.submission import submission_of
from api.jobs.owners.rules import validate_owner, validate_owner_update
from api.objects.workloads import WorkloadObject
from api.workload_decoding import to_workload
from tests.fuzz.inputs import changed, to_json
from tests.fuzz.samples import cluster
from tests.fuzz.target import Target
from tests.owners import SAMPLES, OwnerSample

Object = dict[str, Any]
_NOW = 1_790_000_000.0
_FIXED = (("kind",), ("apiVersion",))


def _submit(obj: Object, *, sample: OwnerSample | None = None) -> None:
    """Check that an object becomes a Workload that can be read, or is refused with a sentence."""
    try:
        manifest = json.loads(to_json(obj))
    except RecursionError:
        return
    if sample is not None:
        # As the webhooks ask, before anything is stored.
        assert all(map(str, validate_owner(sample.row, manifest)))
        assert all(map(str, validate_owner_update(sample.row, sample.object(), manifest)))
    context = JobContext(injection=lambda _: ({}, ()), read=sample.read if sample else lambda *_: None)
    said: tuple[str, ...]
    try:
        found = submission_of(manifest, context, namespace="team", now=_NOW)
        said = found.notes
        if found.workload is not None:
            # What the API server's schema would refuse, and the reader refuses too.
            to_workload(msgspec.json.decode(found.workload, type=WorkloadObject))
            said = (*said, "queued")
    except ValueError as error:
        said = (str(error),)
    assert said, "refused without a sentence"
    assert all(said), "a sentence without words"


def _target(obj: Object, sample: OwnerSample | None = None) -> Target:
    return Target(
        name=f"submitted {obj['kind']}",
        inputs=changed([obj], fixed=_FIXED),
        check=partial(_submit, sample=sample),
        examples=60,
    )


TARGETS = (
    *(_target(one) for one in cluster() if one["kind"] == "Job"),
    *(_target(one.object(), one) for one in SAMPLES),
)
