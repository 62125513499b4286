"""What a Job asks of hardware is written to its pods, where the scheduler extender reads it."""

from __future__ import annotations

import msgspec
import pytest

from api.jobs.job_patches import start_injection
from api.objects.common import Meta
from api.workload import PodSet, PodSetAssignment
from tests.builders import make_template, make_workload

MODEL, TYPE = "accelerator.sched.io/gpu-model", "berth.dev/workload-type"


@pytest.mark.parametrize(
    ("job", "template", "want"),
    [
        pytest.param({MODEL: "A100", "note": "x"}, Meta(), {MODEL: "A100"}, id="what the Job asks"),
        pytest.param({MODEL: "A100"}, Meta(labels={MODEL: "V100"}), {}, id="not what the template says"),
        pytest.param(
            {TYPE: "training"}, Meta(labels={"workload-type": "inference"}), {}, id="nor by its alias"
        ),
        pytest.param({"workload-type": "GPU-intensive"}, Meta(), {}, id="an alias counts by policy alone"),
    ],
)
def test_the_start_adds(job: dict[str, str], template: Meta, want: dict[str, str]) -> None:
    pods = PodSet(name="main", count=1, template=msgspec.structs.replace(make_template(), metadata=template))
    workload = make_workload("w", pod_sets=(pods,), annotations=job)
    assignment = PodSetAssignment(name="main", count=1, flavors={}, usage={})

    annotations = start_injection(workload, assignment, {}, ()).annotations

    assert {key: value for key, value in annotations.items() if key in {MODEL, TYPE, "workload-type"}} == want
