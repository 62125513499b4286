"""What a Job is given as it is created."""

from __future__ import annotations

from typing import Any

import pytest

from admission.reconcile.job.context import Ancestor, JobSettings
from admission.reconcile.job.defaults import NO_DEFAULTS, JobDefaults, job_defaults
from api import keys
from tests.admission.world import context, job_object, read_job

QUEUE, CLASS = keys.QUEUE_NAME, keys.PRIORITY_CLASS
NO_QUEUE = {"labels": {QUEUE: None}}
CLASSES = {
    "workload_priority_classes": {"default": 5},
    "settings": JobSettings(has_class_defaults=True),
}


@pytest.mark.parametrize(
    ("job", "cluster", "has_default_queue", "want"),
    [
        pytest.param({"suspend": False}, {}, False, ({}, True), id="in a queue: it is suspended"),
        pytest.param({}, {}, False, ({}, False), id="in a queue and suspended: nothing"),
        pytest.param(
            {"suspend": False, "labels": {QUEUE: None}, "annotations": {QUEUE: "lq"}},
            {},
            True,
            ({}, True),
            id="in a queue by the older spelling",
        ),
        pytest.param({**NO_QUEUE, "suspend": False}, {}, False, ({}, False), id="in no queue: it runs"),
        pytest.param(
            {**NO_QUEUE, "suspend": False},
            {},
            True,
            ({QUEUE: "default"}, True),
            id="in no queue where there is a default one",
        ),
        pytest.param(
            {**NO_QUEUE, "suspend": False},
            {"settings": JobSettings(manages_without_queue_name=True)},
            False,
            ({}, True),
            id="in no queue, and all Jobs are managed",
        ),
        pytest.param({}, CLASSES, False, ({CLASS: "default"}, False), id="without a priority class"),
        pytest.param(
            {},
            {**CLASSES, "settings": JobSettings()},
            False,
            ({}, False),
            id="without a priority class, where the feature gate for a default one is off",
        ),
        pytest.param(
            {},
            {**CLASSES, "may_use_class": lambda *_: False},
            False,
            ({}, False),
            id="without a priority class in a namespace that may not use the default one",
        ),
        pytest.param({"labels": {CLASS: "low"}}, CLASSES, False, ({}, False), id="with one of its own"),
        pytest.param(NO_QUEUE, CLASSES, False, ({}, False), id="in no queue, so a class is of no use"),
        pytest.param(
            {"suspend": False},
            {"ancestor": lambda _: Ancestor.ADMITTED, **CLASSES},
            True,
            ({CLASS: "default"}, True),
            id="in a queue below an ancestor that is admitted, which does not count it",
        ),
        pytest.param(
            {**NO_QUEUE, "suspend": False},
            {"ancestor": lambda _: Ancestor.ADMITTED},
            True,
            ({QUEUE: "default"}, True),
            id="in no queue below an ancestor, where there is a default one",
        ),
        pytest.param(
            {"suspend": False},
            {"is_namespace_managed": lambda _: False, **CLASSES},
            True,
            ({}, False),
            id="in a namespace that is not managed",
        ),
    ],
)
def test_a_new_job_is_given(
    job: dict[str, Any], cluster: dict[str, Any], has_default_queue: bool, want: tuple[dict[str, str], bool]
) -> None:
    found = job_defaults(read_job(job_object(**job)), context(**cluster), has_default_queue=has_default_queue)

    assert found == JobDefaults(labels=want[0], suspends=want[1])


def test_a_job_that_has_all_is_left_alone() -> None:
    job = read_job(job_object(labels={CLASS: "low"}))

    assert job_defaults(job, context(**CLASSES), has_default_queue=True) == NO_DEFAULTS
