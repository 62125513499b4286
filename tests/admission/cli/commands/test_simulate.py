"""`berth simulate`: what a user gives and gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.simulation.policies import COMPARED

EXAMPLE = Path(__file__).parents[4] / "examples" / "trace.csv"
FIGURES = {
    "jobs",
    "blind",
    "mean_wait_seconds",
    "p50_wait_seconds",
    "p90_wait_seconds",
    "p99_wait_seconds",
    "mean_bounded_slowdown",
    "utilisation",
    "gpu_hours_lost",
    "evictions",
    "promises",
    "promises_broken",
    "gangs",
    "run_seconds",
}


def waits_of(figures: dict[str, Any]) -> tuple[float, ...]:
    """Return the figures on waits."""
    return figures["mean_wait_seconds"], figures["p90_wait_seconds"], figures["gangs"]["mean_wait_seconds"]


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "-o", "json", *arguments])

    assert code == ExitCode.DONE
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_policies_that_preempt_report_both_classes(capsys: pytest.CaptureFixture[str]) -> None:
    policies = report(capsys, "--policy", "preemption,loss-aware")["policies"]

    for found in policies.values():
        # The example's Jobs have no type, so that none may be evicted.
        assert (found["strict"]["jobs"], found["best"]["jobs"], found["evictions"]) == (40, 0, 0)


def test_every_policy_is_compared_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys)

    assert list(found["policies"]) == list(COMPARED)
    assert {frozenset(one) for one in found["policies"].values()} == {frozenset(FIGURES)}
    assert all(one["jobs"] == 40 for one in found["policies"].values())
    assert set(found["policies"]["fifo"]["gangs"]) == {"jobs", "mean_wait_seconds"}


def test_only_the_oracle_knows_run_times(capsys: pytest.CaptureFixture[str]) -> None:
    policies = report(capsys, "--policy", "fifo,sjf-oracle")["policies"]

    assert (policies["fifo"]["blind"], policies["sjf-oracle"]["blind"]) == (True, False)


def test_learned_estimates_are_learned_from_jobs_that_ended(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--policy", "easy", "--estimates", "learned")

    assert found["settings"]["estimates"] == "learned"
    assert (found["policies"]["easy"]["blind"], found["policies"]["easy"]["jobs"]) == (True, 40)


def test_the_fewer_jobs_declare_their_run_time_the_less_their_order_helps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    none, some, all_ = (
        report(capsys, "--policy", "expected-end,best-effort", "--load", "3", "--declaring-share", share)[
            "policies"
        ]
        for share in ("0", "0.5", "1")
    )

    # Where no Job declares anything, the order is that of Kueue.
    assert waits_of(none["expected-end"]) == waits_of(none["best-effort"])
    assert len({waits_of(one["expected-end"]) for one in (none, some, all_)}) == 3


def test_jobs_that_declare_nothing_are_ordered_by_what_was_learned_beside_those_that_declare(
    capsys: pytest.CaptureFixture[str],
) -> None:
    played = ("--policy", "expected-end", "--load", "3")
    none, some, all_ = (
        report(capsys, *played, "--estimates", "learned", *share)["policies"]["expected-end"]
        for share in ((), ("--declaring-share", "0.5"), ("--declaring-share", "1"))
    )
    unknown = report(capsys, *played, "--declaring-share", "0.5")["policies"]["expected-end"]
    exact = report(capsys, *played)["policies"]["expected-end"]

    assert [one["blind"] for one in (none, some, all_)] == [True, False, False]
    assert len({waits_of(one) for one in (none, some, all_, unknown)}) == 4
    assert waits_of(all_) == waits_of(exact)


def test_settings_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    settings = report(capsys, "--policy", "fifo", "--load", "2", "--queues", "tenant")["settings"]

    assert settings["nodes"] == "4x8"
    assert (settings["load"], settings["queues"], settings["job_count"]) == (2.0, "tenant", 40)


def test_more_load_makes_jobs_wait_longer(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [
        report(capsys, "--policy", "fifo", "--load", load)["policies"]["fifo"]["mean_wait_seconds"]
        for load in ("1", "4")
    ]

    assert waits[0] < waits[1]


def test_what_is_lost_is_reported_in_money_where_a_gpu_has_a_price(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = report(capsys, "--policy", "least-attained", "--cost-per-gpu-hour", "2.5")["policies"].values()

    assert found["gpu_hours_lost"] > 0
    assert found["cost_lost"] == pytest.approx(2.5 * found["gpu_hours_lost"])


@pytest.mark.parametrize("price", [(), ("--cost-per-gpu-hour", "1000")])
def test_the_table_has_a_column_of_costs_where_there_is_a_price(
    price: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "--policy", "fifo", *price])

    out = capsys.readouterr().out
    assert ("COST" in out.splitlines()[0], "COST: the cost of the lost GPU-hours." in out) == (
        bool(price),
    ) * 2


def test_the_table_has_a_line_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "--policy", "fifo,best-effort"])

    lines = capsys.readouterr().out.splitlines()
    assert code == ExitCode.DONE
    assert [line.split()[0] for line in lines[:3]] == ["POLICY", "fifo", "best-effort"]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(
            ["--checkpoint-minutes", "9-3"], "the first number must be the smaller", id="an interval back"
        ),
        pytest.param(["--publishing-share", "2"], "'2' is not a number from 0 to 1", id="more than all"),
        pytest.param(["--policy", "magic"], "'magic' is not a policy; there are fifo, ", id="unknown policy"),
        pytest.param(["--estimates", "x0"], "'x0' is not exact, learned or a factor", id="no factor"),
        pytest.param(["--load", "0"], "'0' is not a number above 0", id="no load"),
        pytest.param(["--save-seconds", "-1"], "'-1' is not a number of seconds", id="negative time"),
        pytest.param(["--node-mtbf-hours", "0.001"], "not a number of hours, 1 or more", id="only faults"),
        pytest.param(["--nodes", "1x4"], "can never run: 8 GPUs never fit 1 nodes of 4", id="too small"),
    ],
)
def test_wrong_usage_is_reported_in_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], want: str
) -> None:
    code = main(["simulate", "--jobs", str(EXAMPLE), *arguments])

    assert code == ExitCode.WRONG_USAGE
    assert want in capsys.readouterr().err


NIGHT_OFF = """
quotaWindows:
  - name: closed
    clusterQueue: simulation
    flavor: gpu
    resource: nvidia.com/gpu
    nominalQuota: 0
    start: 1970-01-01T00:00:00Z
    end: 1970-01-01T10:00:00Z
"""


def test_a_calendar_holds_under_every_policy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing starts in the first ten hours: a Job of the beginning waits at least as long."""
    path = tmp_path / "calendar.yaml"
    path.write_text(NIGHT_OFF)
    arguments = ("--policy", "fifo,easy", "--limit", "10")

    without, within = report(capsys, *arguments), report(capsys, *arguments, "--calendar", str(path))

    assert within["settings"]["calendar"] == str(path)
    for name in ("fifo", "easy"):
        longest = [one["policies"][name]["p99_wait_seconds"] for one in (without, within)]
        assert longest[0] < 36_000 <= longest[1]


def test_a_window_for_a_queue_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "calendar.yaml"
    path.write_text(NIGHT_OFF.replace("clusterQueue: simulation", "clusterQueue: nights"))

    main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "--policy", "fifo", "--calendar", str(path)])

    want = 'fifo: spec.quotaWindows[0].clusterQueue is "nights": there is no such ClusterQueue'
    assert want in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "- a list", "must be a mapping with quotaWindows, reservations or both", id="no mapping"
        ),
        pytest.param("quotas: []", "must be a mapping with quotaWindows", id="an unknown section"),
        pytest.param("quotaWindows: [{name: x}]", "spec.quotaWindows[0]", id="a window without its fields"),
        pytest.param("{", "calendar.yaml", id="no YAML"),
    ],
)
def test_a_calendar_that_cannot_be_read_is_one_sentence(
    text: str, want: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "calendar.yaml"
    path.write_text(text)

    code = main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "--calendar", str(path)])

    assert code == ExitCode.WRONG_USAGE
    assert want in capsys.readouterr().err


FLAVORS = """
- {name: h100, nodes: 2, costPerGpuHour: 4.0, labels: {nvidia.com/gpu.product: H100}}
- {name: spot, nodes: 2, costPerGpuHour: 1.0, nodeMtbfHours: 24, labels: {karpenter.sh/capacity-type: spot}}
"""


def test_flavors_divide_the_nodes_and_have_prices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "flavors.yaml"
    file.write_text(FLAVORS)

    found = report(capsys, "--policy", "best-effort,flavor-score", "--flavors", str(file))["policies"]

    assert found["flavor-score"]["cost"] < found["best-effort"]["cost"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("- {name: a, nodes: 3}", "the flavors have 3 nodes, but --nodes is 4x8", id="too few"),
        pytest.param("[{name: a, nodes: 2}, {name: a, nodes: 2}]", "have the same name", id="a name twice"),
        pytest.param("- {name: a, nodes: 4, price: 1}", "unknown field `price`", id="an unknown field"),
        pytest.param("- {name: a, nodes: 0}", ">= 1", id="no nodes"),
        pytest.param("name: a", "Expected `array`", id="no list"),
    ],
)
def test_flavors_that_cannot_be_used_are_named(
    text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "flavors.yaml"
    file.write_text(text)

    code = main(["simulate", "--jobs", str(EXAMPLE), "--nodes", "4x8", "--flavors", str(file)])

    assert code == ExitCode.WRONG_USAGE
    printed = capsys.readouterr().err
    assert str(file) in printed
    assert message in printed
