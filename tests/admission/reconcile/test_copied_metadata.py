"""What a Workload copies from its Job or pod: the patch holds what differs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from admission.reconcile.copied_metadata import changed_metadata
from api.jobs.queued_object import Queued
from api.keys import ADMISSION_GATED_BY, CHECKPOINT_STEP, CHECKPOINT_TIME, EXPECTED_RUNTIME_SECONDS
from tests.builders import make_workload

NOW = 1_800_000_000.0
SAVED = "2027-01-15T07:59:00Z"
PROGRESS = {CHECKPOINT_TIME: SAVED, CHECKPOINT_STEP: "7"}
RUNTIME = {EXPECTED_RUNTIME_SECONDS: "60"}
GATE = {ADMISSION_GATED_BY: "example.com/gate"}


@pytest.mark.parametrize(
    ("job", "workload", "progress", "want"),
    [
        pytest.param({}, {}, {}, {}, id="nothing where there is nothing to copy"),
        pytest.param(
            {"labels": {"team": "ai"}},
            {"labels": {"team": "web"}},
            {},
            {},
            id="no label: those that are configured are copied once, at the creation",
        ),
        pytest.param(
            {"annotations": {**RUNTIME, "example.com/other": "x"}},
            {},
            {},
            {"annotations": RUNTIME},
            id="the annotations that decisions read",
        ),
        pytest.param(
            {"annotations": {**RUNTIME, **GATE}},
            {"annotations": RUNTIME},
            {},
            {"annotations": GATE},
            id="of the annotations those that differ",
        ),
        pytest.param({}, {}, PROGRESS, {"annotations": PROGRESS}, id="the newest checkpoint"),
        pytest.param({}, {"annotations": PROGRESS}, PROGRESS, {}, id="no checkpoint that it has"),
        pytest.param(
            {},
            {"annotations": {CHECKPOINT_TIME: "2027-01-15T07:59:30Z"}},
            PROGRESS,
            {},
            id="no checkpoint that is older than its own",
        ),
        pytest.param(
            {},
            {"annotations": GATE},
            {},
            {"annotations": {ADMISSION_GATED_BY: None}},
            id="that the gate is gone, once it was removed from the Job",
        ),
        pytest.param({"annotations": GATE}, {"annotations": GATE}, {}, {}, id="no gate that it has"),
        pytest.param(
            {"labels": {"team": "ai"}, "annotations": RUNTIME},
            {},
            {},
            {"annotations": RUNTIME},
            id="annotations beside labels",
        ),
    ],
)
def test_to_be_up_to_date_a_workload_is_given(
    job: dict[str, Any], workload: dict[str, Any], progress: dict[str, str], want: dict[str, Any]
) -> None:
    owner = Queued(namespace="team", name="j", uid="uid-j", **job)

    found = changed_metadata(
        owner,
        make_workload(**workload),
        progress=progress,
        now=NOW,
    )

    assert found == want
