"""How long a Workload is expected to run: what is said of the estimate, of runs like it, and of promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.answers.run_time import run_time_json, run_time_line
from api.keys import EXPECTED_RUNTIME_SECONDS, WORKLOAD_TYPE
from api.policy import AdmissionPolicy, Backfill, BackfillMode, Estimates
from api.reasons import ConditionType
from api.workload import Workload
from tests.admission.answers.test_usage import HOLDS
from tests.builders import World, admitted, make_cluster_queue, make_condition, make_workload, with_conditions

MINUTE = 60.0
BACKFILL = Backfill(mode=BackfillMode.EASY, window_seconds=7200, ending_seconds=30)
DECLARED = {EXPECTED_RUNTIME_SECONDS: "1800"}


def ran(number: int, minutes: float) -> Workload:
    """Return a run of `train` that has succeeded."""
    workload = admitted(make_workload(f"train-{number}", gpus=8), HOLDS, at=0.0)
    ended = make_condition(ConditionType.FINISHED, reason="Succeeded", at=minutes * MINUTE)
    return with_conditions(workload, ended)


def said(
    annotations: dict[str, str], *runs: float, policy: AdmissionPolicy | None = None
) -> tuple[str | None, dict[str, object]]:
    """Return the sentence and the JSON about a pending `train`, after runs like it took so many minutes."""
    world = World(now=86_400.0)
    world.put(make_cluster_queue("queue", quota=8), *((policy,) if policy is not None else ()))
    world.put(*(ran(number, minutes) for number, minutes in enumerate(runs)))
    world.put(make_workload("train-99", gpus=8, annotations=annotations))
    waiting = world.get("train-99")
    run_time = world.engine.workloads.run_time(waiting)
    return run_time_line(run_time), run_time_json(run_time)


def by(**sections: object) -> AdmissionPolicy:
    """Return a policy of all ClusterQueues."""
    return replace(AdmissionPolicy(name="policy"), **sections)  # type: ignore[arg-type]


LEARNING = by(backfill=BACKFILL, estimates=Estimates(quantile=0.9, min_observations=3))


@pytest.mark.parametrize(
    ("annotations", "runs", "policy", "want"),
    [
        pytest.param({}, (), None, None, id="nothing is known and nothing is promised"),
        pytest.param(
            DECLARED,
            (),
            None,
            "expected to run: 30.0 min by berth.dev/expected-runtime-seconds",
            id="it declares a run time",
        ),
        pytest.param(
            DECLARED,
            (10, 20, 40),
            by(backfill=BACKFILL),
            "expected to run: 30.0 min by berth.dev/expected-runtime-seconds; half of 3 runs like it took at"
            " most 20.0 min; promises count with 31.1 min, eviction included",
            id="it declares more than runs like it took",
        ),
        pytest.param(
            {},
            (10, 20, 40),
            LEARNING,
            "expected to run: 40.0 min by what earlier runs took; half of 3 runs like it took at most"
            " 20.0 min; promises count with 41.1 min, eviction included",
            id="its run time is learned",
        ),
        pytest.param(
            {},
            (10,),
            LEARNING,
            "expected to run: no source gives one; 1 run like it took at most 10.0 min; promises count with"
            " 2.0 h, eviction included",
            id="too few runs to learn from",
        ),
        pytest.param(
            {WORKLOAD_TYPE: "inference"},
            (),
            by(backfill=BACKFILL),
            "expected to run: no source gives one; promises cannot count on its end: it may not be evicted,"
            " and no limit ends it",
            id="inference without a limit",
        ),
    ],
)
def test_the_run_time_is_explained(
    annotations: dict[str, str], runs: tuple[float, ...], policy: AdmissionPolicy | None, want: str | None
) -> None:
    line, body = said(annotations, *runs, policy=policy)

    assert line == want
    assert body["summary"] == (want or "")


def test_programs_read_the_numbers() -> None:
    _, body = said({}, 10, 20, 40, policy=LEARNING)

    del body["summary"]
    assert body == {
        "estimateSeconds": 2400,
        "source": "Learned",
        "runsLikeIt": 3,
        "medianSeconds": 1200,
        "promisesCountSeconds": 2465,
    }
