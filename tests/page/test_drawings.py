"""What the page draws: bars of time, shares of quota, racks and charts."""

from __future__ import annotations

import json

import pytest

from admission.answers.items import QuotaItem, WorkloadItem
from admission.controller.page.bars import Bar, Span, drawing
from admission.controller.page.charts import decision_chart, promise_chart
from admission.controller.page.queue_screen import queue_rows, spans
from admission.controller.page.quota_tree import Shares, quota_lines, quota_trees
from admission.controller.page.rack_map import flavor_maps
from admission.controller.page.texts import clock_text, duration_text, relative_text
from admission.controller.page.workload_screen import moments, time_line
from tests.page.scene import NOW, at, cluster_queue, cohort, decision, promise, quota, rack, running, workload


def test_bars_share_one_axis_from_the_first_begin_to_the_last_end() -> None:
    drawn = drawing([[Span(50.0, 100.0, "runs")], [Span(100.0, 150.0, "promised")]], now=75.0)

    assert drawn.rows == ((Bar(0.0, 500.0, "runs"),), (Bar(500.0, 500.0, "promised"),))
    assert (drawn.now_x, drawn.begin, drawn.end) == (250.0, "25 s ago", "in 1 min 15 s")


def test_ticks_are_at_round_distances_from_now() -> None:
    drawn = drawing([[Span(70.0, 150.0, "runs")]], now=100.0)

    assert drawn.ticks == (0.0, 125.0, 250.0, 500.0, 625.0, 750.0, 875.0, 1000.0)


def test_a_bar_that_is_over_in_a_moment_can_still_be_seen() -> None:
    assert drawing([[Span(0.0, 0.0, "runs"), Span(0.0, 1e6, "runs")]], now=0.0).rows[0][0].width == 4.0


@pytest.mark.parametrize(
    ("one", "want"),
    [
        (running("a", expected_end=at(900)), [(-900, 900, "runs")]),
        (running("a"), [(-900, 66, "runs")]),
        (running("a", expected_end=at(-5)), [(-900, -5, "runs")]),
        (workload("a", expected_start=at(60), expected_end=at(100)), [(60, 100, "expected")]),
        (workload("a", expected_start=at(100), is_promised=True), [(100, 110, "promised")]),
        (workload("a", expected_start=at(-5), expected_end=at(20)), [(0, 20, "expected")]),
        (workload("a", expected_start=at(60), can_start=False), []),
        (workload("a"), []),
    ],
    ids=[
        "what runs is drawn from its start to its expected end",
        "an end that is not known is drawn beyond what is",
        "what should have ended is drawn until then",
        "an expected start is drawn with the expected run",
        "a promise has a kind of its own",
        "a start that is due begins now",
        "what cannot start has no bar",
        "without a start there is no bar",
    ],
)
def test_a_workload_is_drawn_as_it_runs_or_is_expected_to(
    one: WorkloadItem, want: list[tuple[float, float, str]]
) -> None:
    assert [(s.begins_at - NOW, round(s.ends_at - NOW, 1), s.kind) for s in spans(one, now=NOW)] == want


def test_rows_of_a_queue_keep_their_order_and_share_the_horizon() -> None:
    items = [running("a"), workload("b", expected_start=at(1000))]

    drawn, rows = queue_rows(items, now=NOW)

    assert [row.item for row in rows] == items
    assert [(bar.kind, round(bar.x + bar.width)) for row in rows for bar in row.bars] == [
        ("runs", 1000),
        ("expected", 1000),
    ]
    assert drawn.end == "in 18 min"


@pytest.mark.parametrize(
    ("item", "want"),
    [
        (quota(), Shares(own=62.5, borrowed=0.0, over=0.0, lent=12.5)),
        (quota(used="40", borrowed="8", lent="0"), Shares(own=80.0, borrowed=20.0, over=0.0, lent=0.0)),
        (quota(used="40", over="8", lent="0"), Shares(own=80.0, borrowed=0.0, over=20.0, lent=0.0)),
        (quota(nominal="0", used="0", lent="0"), Shares(own=0.0, borrowed=0.0, over=0.0, lent=0.0)),
    ],
    ids=["own and lent", "borrowed comes on top", "over comes on top", "no quota draws nothing"],
)
def test_a_quota_is_drawn_by_what_it_is_used_for(item: QuotaItem, want: Shares) -> None:
    (line,) = quota_lines([item])

    assert line.shares == want


def test_queues_hang_below_their_cohorts_and_those_without_one_come_last() -> None:
    cohorts = [cohort("all", None), cohort("research", "all")]
    queues = [cluster_queue("alone", None), cluster_queue("a", "research"), cluster_queue("b", "hidden")]

    root, alone, hidden = quota_trees(cohorts, queues)

    assert (root.item.name, alone.item.name, hidden.item.name) == ("all", "alone", "b")
    (research,) = root.children
    assert (research.item.name, [one.item.name for one in research.children]) == ("research", ["a"])


def test_the_largest_gang_of_a_flavor_is_in_the_rack_with_most_free_gpus() -> None:
    (one,) = flavor_maps([rack(0, free=0), rack(1, free=10), rack(2, free=26)])

    assert one.gang is not None
    assert (one.gang.pods, one.gang.gpus_per_pod) == (13, 2)
    assert [(each.used, each.is_best) for each in one.racks] == [(100.0, False), (68.8, False), (18.8, True)]


def test_a_full_flavor_fits_no_gang() -> None:
    (one,) = flavor_maps([rack(0, free=0)])

    assert (one.gang, one.racks[0].gang, one.racks[0].is_best) == (None, None, False)


def test_decisions_are_counted_by_kind_in_steps_of_time() -> None:
    chart = json.loads(
        decision_chart([decision(0, "Admit"), decision(2, "Admit"), decision(2, "Evict")], now=NOW)
    )

    assert [one - NOW for one in chart["x"]] == [-2, -1, 0]
    assert {one["label"]: one["values"] for one in chart["series"]} == {
        "Admit": [1, 0, 1],
        "Evict": [1, 0, 0],
    }


def test_promised_starts_add_up_over_time() -> None:
    chart = json.loads(promise_chart([promise("b", starts_in=60), promise("a", starts_in=30)], now=NOW))

    assert ([one - NOW for one in chart["x"]], chart["series"][0]["values"]) == ([0, 30, 60], [0, 1, 2])


def test_charts_without_entries_are_left_out() -> None:
    assert (decision_chart([], now=NOW), promise_chart([], now=NOW)) == ("", "")


def test_a_time_line_has_the_wait_and_the_promised_run() -> None:
    one = workload("a", expected_start=at(600), expected_end=at(1200), is_promised=True)

    assert [(bar.kind, bar.x, bar.width) for bar in time_line(one, now=NOW).rows[0]] == [
        ("wait", 0.0, 666.7),
        ("promised", 666.7, 333.3),
    ]


def test_moments_are_in_the_order_of_time() -> None:
    one = workload("a", expected_start=at(700), is_promised=True)

    found = moments(one, promise("a", starts_in=700, first_start_at=at(600), moves=1))

    assert [each.text for each in found] == [
        "created",
        "promised a start",
        "start as promised first",
        "start as promised",
    ]


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (3599, "59 min"),
        (7260, "2 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want


def test_instants_are_relative_to_now_and_absolute_in_utc() -> None:
    assert [relative_text(at, 100.0) for at in (40.0, 100.4, 160.0)] == ["1 min ago", "now", "in 1 min"]
    assert (clock_text(at(0)), clock_text(None)) == ("2026-09-21 14:13:20 UTC", "")
