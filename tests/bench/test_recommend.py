"""bench.recommend compares shipped policies with Kueue's order on draws of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.simulation.policies import POLICIES
from api.policy import Backfill, BackfillMode, Ordering, OrderingMode
from bench.recommend import Waits, main

ROOT = Path(__file__).parents[2]
PLAYED = ("--jobs", str(ROOT / "examples" / "trace.csv"), "--nodes", "4x8", "--processes", "1")


def shipped(name: str) -> dict[str, Any]:
    """Return the spec of a policy in deploy/."""
    spec: dict[str, Any] = yaml.safe_load((ROOT / "deploy/policies" / f"{name}.yaml").read_text())["spec"]
    return spec


def test_what_is_measured_is_what_is_shipped() -> None:
    ordering, backfill = shipped("recommended")["ordering"], shipped("backfill")["backfill"]

    assert POLICIES["expected-end"].ordering == Ordering(
        mode=OrderingMode(ordering["mode"]),
        age_seconds=ordering["ageSeconds"],
        unknown_seconds=ordering["unknownSeconds"],
    )
    assert POLICIES["easy"].backfill == Backfill(ending_seconds=0, mode=BackfillMode(backfill["mode"]))


def test_each_policy_has_a_line_for_each_load_and_each_kind_of_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main([*PLAYED, "--share", "0.8", "--seeds", "1", "--json"])

    lines = json.loads(capsys.readouterr().out)["lines"]
    kinds = ["none", "exact", "x5", "x0.2", "half declare", "learned"]
    assert code == 0
    assert [(one["load"], one["estimates"]) for one in lines] == [
        (load, kind) for load in (0.85, 1.0, 1.15) for kind in kinds
    ]
    assert {one["draws"] for one in lines} == {1}
    assert {one["policy"]: one["not_worse"] for one in lines if one["estimates"] == "none"} == {
        "best-effort": 1
    }


def test_only_the_loads_and_estimates_that_are_asked_for_are_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--loads", "0.7", "--estimates", "tenth,most", "--seeds", "1", "--json")
    code = main([*PLAYED, "--share", "0.8", *asked])

    lines = json.loads(capsys.readouterr().out)["lines"]
    kinds = ["none", "tenth declare", "most declare"]
    assert code == 0
    assert [(one["load"], one["estimates"]) for one in lines] == [(0.7, kind) for kind in kinds]


def test_an_estimate_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*PLAYED, "--estimates", "exact,guessed"])

    assert ended.value.code == 2
    assert "no estimate guessed; there are exact, x5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("waits", "is_worse"),
    [
        pytest.param(Waits(mean=10, gangs=20, p99=30, evictions=0), False, id="as long"),
        pytest.param(Waits(mean=9, gangs=20, p99=30, evictions=5), False, id="shorter, with evictions"),
        pytest.param(Waits(mean=9, gangs=21, p99=29, evictions=0), True, id="longer for gangs alone"),
        pytest.param(
            Waits(mean=9, gangs=19, p99=31, evictions=0), True, id="longer for the last of a hundred"
        ),
    ],
)
def test_worse_is_a_longer_wait_of_any_kind(waits: Waits, is_worse: bool) -> None:
    assert waits.is_worse_than(Waits(mean=10, gangs=20, p99=30, evictions=0)) is is_worse


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(
            ("--jobs", "nowhere.csv"), 0, "skipped, because there is no trace nowhere.csv", id="no trace"
        ),
        pytest.param((*PLAYED, "--share", "0"), 2, "leaves none to play", id="a draw of nothing"),
        pytest.param(
            (*PLAYED, "--nodes", "4x1", "--share", "1"),
            2,
            "can never run",
            id="a Job that is too wide for the draw",
        ),
    ],
)
def test_a_trace_that_cannot_be_played_is_named(
    arguments: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code

    assert text in "".join(capsys.readouterr())
