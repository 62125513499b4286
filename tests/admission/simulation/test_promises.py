"""Promises of a run and what became of them, from recorded objects."""

from __future__ import annotations

import pytest

from admission.cli.views.summary import promises_sentence
from admission.simulation.promises import Promised, promises
from admission.simulation.records import ObjectRecord
from api.workload import WorkloadKey
from tests.admission.simulation.records import gone, holding, pending

# The records' clock stood at 0 at ten seconds past midnight.
EPOCH = 10.0
AT_100 = "1970-01-01T00:01:40Z"
AT_160 = "1970-01-01T00:02:40Z"


@pytest.mark.parametrize(
    ("records", "want"),
    [
        pytest.param([pending("a", version=1), holding("a", "q", 1, version=2, at=5)], (), id="no promise"),
        pytest.param(
            [pending("a", version=1, planned=AT_100), holding("a", "q", 1, version=2, at=80)],
            ((100.0, 90.0),),
            id="a start before the promise",
        ),
        pytest.param(
            [
                pending("a", version=1, planned=AT_100),
                pending("a", version=2, planned=AT_160),
                holding("a", "q", 1, version=3, at=150),
            ],
            ((100.0, 160.0),),
            id="the first promise counts, and not the one that it was put off to",
        ),
        pytest.param(
            [
                pending("a", version=1, planned=AT_100),
                holding("a", "q", 1, version=2, at=50),
                holding("a", "q", 1, version=4, at=500),
            ],
            ((100.0, 60.0),),
            id="the first start counts, whatever is written later",
        ),
        pytest.param(
            [pending("a", version=1, planned=AT_100), gone(pending("a", version=1), at=20)],
            ((100.0, None),),
            id="a Job deleted while it waits has not started",
        ),
    ],
)
def test_the_first_promise_is_compared_with_the_first_start(
    records: list[ObjectRecord], want: tuple[tuple[float, float | None], ...]
) -> None:
    found = promises(records, epoch=EPOCH)

    assert tuple((one.promised_at, one.started_at) for one in found) == want


def promised(start: float | None) -> Promised:
    return Promised(key=WorkloadKey("n", "a"), promised_at=100.0, started_at=start)


@pytest.mark.parametrize(
    ("outcomes", "want"),
    [
        pytest.param([], "No job needed a promised start.", id="no Job waited"),
        pytest.param(
            [promised(90.0), promised(80.0)],
            "2 jobs that had to wait were promised a start, and all kept it: 30 s early on average.",
            id="all in time, in seconds of the run",
        ),
        pytest.param(
            [promised(100.9)],
            "1 job that had to wait was promised a start and kept it: 0.0 s early.",
            id="within the second in which promises are written",
        ),
        pytest.param(
            [promised(90.0), promised(104.0)],
            "Of 2 jobs that had to wait, 1 started later than promised, by 8.0 s at most.",
            id="one was late",
        ),
        pytest.param(
            [promised(90.0), promised(None)],
            "Of 2 jobs that had to wait, 1 never started.",
            id="one never started",
        ),
    ],
)
def test_a_sentence_says_whether_promises_were_kept(outcomes: list[Promised], want: str) -> None:
    assert promises_sentence(outcomes, pace=2.0) == want
