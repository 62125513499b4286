"""Untrusted texts in annotations, labels and tokens: parsing them always ends, whatever they contain.

They are parsed while decisions about all Workloads are made, so an exception for one would block the
others. An annotation has room for 256 KiB.
"""

from __future__ import annotations

import base64

import pytest

from admission.preemption.replicas import DEFAULT_MIN_REPLICAS, min_replicas
from api import keys
from api.eviction import eviction_request
from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from api.jobs.placement_annotations import annotation_faults, gpu_count_fault
from api.jobs.topology_request import topology_request_body
from api.parsing.cron import CronError, parse_cron
from api.parsing.decimals import MOST_DIGITS, whole_number
from api.wire.pod_tokens import TokenError, review_body
from queues.estimates.estimator import declared_seconds
from tests.builders import make_workload

DEEP = '{"x":' + "[" * 100_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0", 0, id="nothing"),
        pytest.param("007", 7, id="zeros before it"),
        pytest.param("9" * MOST_DIGITS, 9_999_999_999, id="as long as a number may be"),
        pytest.param("9" * (MOST_DIGITS + 1), None, id="one digit more"),
        pytest.param(LONG, None, id="more digits than Python converts"),
        pytest.param("٣", None, id="a digit of another script"),
        pytest.param("²", None, id="a power"),
        pytest.param("-1", None, id="a sign"),
        pytest.param("", None, id="no text"),
        pytest.param(None, None, id="no key"),
    ],
)
def test_a_whole_number(text: str | None, want: int | None) -> None:
    assert whole_number(text) == want


@pytest.mark.parametrize("text", [pytest.param(DEEP, id="nested deep"), pytest.param(LONG, id="long")])
def test_measured_times_that_cannot_be_read_are_none(text: str) -> None:
    workload = make_workload(annotations={keys.CHECKPOINT_MEASURED: text})

    assert checkpoint_facts(workload) == CheckpointFacts()


@pytest.mark.parametrize("text", [pytest.param(DEEP, id="nested deep"), pytest.param(LONG, id="long")])
def test_an_eviction_that_cannot_be_read_is_none(text: str) -> None:
    assert eviction_request(make_workload(annotations={keys.EVICTION: text})) is None


def test_a_token_nested_deep_is_not_believed() -> None:
    payload = base64.urlsafe_b64encode(b"[" * 5_000).decode()

    with pytest.raises(TokenError) as refused:
        review_body(f"e30.{payload}.sig", now=0)

    assert refused.value.status == 401


def test_a_number_of_replicas_too_long_to_be_one_counts_as_not_said() -> None:
    assert min_replicas(make_workload(annotations={keys.MIN_REPLICAS: LONG})) == DEFAULT_MIN_REPLICAS


def test_a_number_of_gpus_too_long_to_be_one_is_named_as_a_fault() -> None:
    sources = ({keys.GPU_COUNT: LONG},)

    assert gpu_count_fault(sources, 8) is None
    assert "must be a whole number" in next(annotation_faults(sources))


def test_a_run_time_too_long_to_be_one_counts_as_not_said() -> None:
    assert declared_seconds(make_workload(annotations={keys.EXPECTED_RUNTIME_SECONDS: LONG})) is None


def test_a_slice_too_large_to_be_one_asks_for_none() -> None:
    assert topology_request_body({keys.SLICE_SIZE: LONG}) is None


def test_a_cron_line_of_a_long_number_is_refused_as_one() -> None:
    with pytest.raises(CronError, match="the minute '9"):
        parse_cron(f"{LONG} * * * *")
