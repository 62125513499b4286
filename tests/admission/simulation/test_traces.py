"""Reading traces: what counts, what is refused with which sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.simulation.traces import (
    TraceError,
    TraceJob,
    first_submitted,
    parse_trace,
    read_trace,
    tenants,
)

HEADING = "job_id,user,num_gpu,submit_time,duration\n"


def parse(*rows: str, heading: str = HEADING) -> tuple[TraceJob, ...]:
    return parse_trace([heading, *(row + "\n" for row in rows)], source="jobs.csv")


def test_minutes_become_seconds_and_other_columns_are_ignored() -> None:
    jobs = parse("strict,7,vc_a,4,2.5,10", heading="job_type,job_id,user,num_gpu,submit_time,duration\n")

    assert jobs == (TraceJob(id="7", tenant="vc_a", gpus=4, submitted_at=150.0, duration_seconds=600.0),)


def test_without_an_id_column_the_line_number_is_the_id() -> None:
    jobs = parse("a,1,0,1", "a,1,0,1", heading="user,num_gpu,submit_time,duration\n")

    assert [job.id for job in jobs] == ["2", "3"]


def test_the_first_by_submit_time_are_taken_and_moved_to_zero() -> None:
    jobs = parse("late,a,1,9,1", "early,b,1,5,1", "same,a,1,5,1")

    first = first_submitted(jobs, 2)

    assert [(job.id, job.submitted_at) for job in first] == [("early", 0.0), ("same", 0.0)]
    assert tenants(jobs) == ("a", "b")
    assert first_submitted(jobs, None)[-1].submitted_at == 240.0


@pytest.mark.parametrize(
    ("text", "want_words"),
    [
        pytest.param("", ["is empty", "user, num_gpu"], id="an empty file has no heading"),
        pytest.param(
            "tenant,gpus\na,1\n",
            ["has the columns tenant, gpus", "expected user, num_gpu, submit_time, duration"],
            id="wrong columns are named beside the expected ones",
        ),
        pytest.param(HEADING, ["no Job"], id="a heading alone holds no Job"),
        pytest.param(HEADING + "1,a,two,0,1\n", ["line 2", "num_gpu", "'two'"], id="a word is no number"),
        pytest.param(HEADING + "1,a,1.5,0,1\n", ["line 2", "num_gpu", "whole"], id="half a GPU is refused"),
        pytest.param(HEADING + "1,a,-1,0,1\n", ["line 2", "num_gpu"], id="fewer than no GPUs are refused"),
        pytest.param(HEADING + "1,a,1,nan,1\n", ["line 2", "submit_time"], id="not-a-number is no time"),
        pytest.param(HEADING + "1,a,1,0,inf\n", ["line 2", "duration"], id="nothing runs for ever"),
        pytest.param(HEADING + "1,a,1,0,\n", ["line 2", "duration", "''"], id="an empty cell is named"),
        pytest.param(HEADING + "1,a,1\n", ["line 2", "submit_time"], id="a short line is named"),
        pytest.param(HEADING + "1,,1,0,1\n", ["line 2", "user is empty"], id="a tenant needs a name"),
        pytest.param(HEADING + "1,a,1,0,1\n1,b,1,0,1\n", ["job_id '1'", "two Jobs"], id="an id is used once"),
    ],
)
def test_a_bad_trace_is_refused_with_one_sentence(text: str, want_words: list[str]) -> None:
    with pytest.raises(TraceError) as refusal:
        parse_trace(text.splitlines(keepends=True), source="jobs.csv")

    message = str(refusal.value)
    assert message.startswith("jobs.csv")
    assert [word for word in want_words if word not in message] == []
    assert "\n" not in message


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("﻿" + "user,num_gpu,submit_time,duration\na,1,0,1\n", encoding="utf-8")

    assert len(read_trace(file)) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")

    for file, want in ((tmp_path / "none.csv", "no file"), (tmp_path, "cannot be read"), (binary, "UTF-8")):
        with pytest.raises(TraceError, match=want) as refusal:
            read_trace(file)
        assert str(file) in str(refusal.value)
