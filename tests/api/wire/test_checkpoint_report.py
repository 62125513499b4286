"""The body of a checkpoint report: accepted ones, and the messages for invalid ones."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from api.jobs.checkpoint_annotations import checkpoint_facts, parse_measured
from api.keys import CHECKPOINT_MEASURED, CHECKPOINT_SAVE_SECONDS
from api.objects.common import Meta
from api.objects.templates import WirePodTemplate
from api.wire.checkpoint_report import BadReportError, Report, read_report
from tests.builders import make_pod_set, make_workload

# 2026-01-31T12:00:00Z
NOW = 1_769_860_800.0
AT = "2026-01-31T11:59:00Z"


def read(**fields: Any) -> Report:
    return read_report(msgspec.json.encode(fields), now=NOW)


def test_a_checkpoint_with_its_cost() -> None:
    assert read(step=5, time=AT, saveSeconds=1.5) == Report(saved_at=NOW - 60, step=5, save_seconds=1.5)


def test_the_remaining_time_counts_from_the_arrival_of_the_report() -> None:
    assert read(remainingSeconds=5400) == Report(completes_at=NOW + 5400)


def test_a_clock_that_is_a_little_ahead_counts_as_now() -> None:
    assert read(step=5, time="2026-01-31T12:00:59Z").saved_at == NOW


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, "resumedAt, or remainingSeconds", id="nothing"),
        pytest.param({"remainingSeconds": -1}, "remainingSeconds is -1", id="an end that is past"),
        pytest.param({"remainingSeconds": 1e10}, "from 0 to 315360000", id="an end that is centuries away"),
        pytest.param({"step": 1}, "both: step, and the time", id="a step without a time"),
        pytest.param({"time": AT}, "both: step, and the time", id="a time without a step"),
        pytest.param(
            {"resumedAt": AT, "saveSeconds": 1}, "report its step", id="a cost without a checkpoint"
        ),
        pytest.param({"step": True, "time": AT}, "step is true", id="a step that is no number"),
        pytest.param({"step": 1.5, "time": AT}, "step is 1.5", id="half a step"),
        pytest.param({"step": 2**60, "time": AT}, "step is 1152921504606846976", id="an absurd step"),
        pytest.param({"step": 1, "time": "noon"}, 'time is "noon"', id="a time that is none"),
        pytest.param({"step": 1, "time": 7}, "time is 7", id="a time of another type"),
        pytest.param({"step": 1, "time": "1960-01-01T00:00:00Z"}, "time is", id="a time before computers"),
        pytest.param(
            {"step": 1, "time": "2026-01-31T12:01:01Z"}, "lies 61 s in the future", id="a time to come"
        ),
        pytest.param({"step": 1, "time": AT, "saveSeconds": -1}, "saveSeconds is -1", id="a negative cost"),
        pytest.param({"step": 1, "time": AT, "saveSeconds": 1e9}, "from 0 to 86400", id="a huge cost"),
        pytest.param({"step": 1, "time": AT, "saveseconds": 3}, "'saveseconds' is no field", id="misspelt"),
    ],
)
def test_a_field_that_cannot_be_believed_is_named(fields: dict[str, Any], want: str) -> None:
    with pytest.raises(BadReportError, match=re.escape(want)) as caught:
        read(**fields)

    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("body", "want_status", "want"),
    [
        pytest.param(b"{", 400, "no JSON", id="half a body"),
        pytest.param(b"\xff\xfe", 400, "no JSON", id="bytes that are no text"),
        pytest.param(b"[" * 4000, 400, "no JSON", id="a deep nest"),
        pytest.param(b"[]", 422, "must be a JSON object", id="a list"),
        pytest.param(b" " * 4097, 413, "up to 4096 bytes", id="too much"),
    ],
)
def test_what_is_no_report_has_a_status_of_its_own(body: bytes, want_status: int, want: str) -> None:
    with pytest.raises(BadReportError, match=want) as caught:
        read_report(body, now=NOW)

    assert caught.value.status == want_status


def facts_of(**annotations: str) -> float | None:
    keys = {"measured": CHECKPOINT_MEASURED, "declared": CHECKPOINT_SAVE_SECONDS}
    annotated = {keys[name]: text for name, text in annotations.items()}
    return checkpoint_facts(make_workload(annotations=annotated)).save_seconds


def test_what_the_author_of_a_pod_template_says_was_measured_has_no_effect() -> None:
    forged = {CHECKPOINT_MEASURED: '{"save":[9,9,9]}', CHECKPOINT_SAVE_SECONDS: "5"}
    template = WirePodTemplate(metadata=Meta(annotations=forged))
    workload = make_workload(pod_sets=(make_pod_set(template=template),))

    assert checkpoint_facts(workload).save_seconds == 5.0


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({"declared": "5"}, 5.0, id="what is declared counts where nothing is measured"),
        pytest.param({"declared": "5", "measured": '{"save":[9,9]}'}, 5.0, id="and up to two measurements"),
        pytest.param({"declared": "5", "measured": '{"save":[9,40,9]}'}, 9.0, id="then the middle one"),
        pytest.param({"declared": "5", "measured": '{"save":[-1,9,9]}'}, 5.0, id="but none below zero"),
        pytest.param({"declared": "5", "measured": "}"}, 5.0, id="nor does what cannot be read"),
    ],
)
def test_measured_times_replace_declared_ones_after_three(annotations: dict[str, str], want: float) -> None:
    assert facts_of(**annotations) == want


def test_an_endless_list_of_measurements_is_not_believed() -> None:
    assert parse_measured(msgspec.json.encode({"save": [1] * 11}).decode()) is None
