"""Quota windows over time: cron in time zones, days on which clocks are set, overlaps, and steps."""

from __future__ import annotations

from datetime import datetime
from math import inf
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.parsing.schedule import last_firing, next_firing
from api.policy import QuotaWindow, Schedule
from queues.quota.quota_windows import closes_at, in_force, next_change_at, opens_at, overlaps, spans
from queues.quota.window_timeline import QuotaStep, QuotaTimeline
from queues.steps import finish
from tests.examples import trying

BERLIN = "Europe/Berlin"
HOUR = 3600


def at(text: str, zone: str = "UTC") -> float:
    """Return the instant of a wall clock's time; a trailing `'` is the second time that it shows it."""
    wall = datetime.fromisoformat(text.rstrip("'")).replace(tzinfo=ZoneInfo(zone))
    return wall.replace(fold=text.endswith("'")).timestamp()


def steps(
    windows: list[QuotaWindow], nominal: int, *, after: float, until: float, most: int
) -> list[QuotaStep]:
    return QuotaTimeline(windows, nominal, now=after).steps(until=until, most=most)


def make_window(
    name: str = "night",
    *,
    cron: str | None = None,
    hours: float = 1,
    zone: str = "UTC",
    nominal: int = 0,
    span: tuple[float, float] | None = None,
    lead: int = 0,
) -> QuotaWindow:
    schedule = None
    if cron is not None:
        schedule = Schedule(cron=cron, time_zone=zone, duration_seconds=int(hours * HOUR))
    start, end = span if span is not None else (None, None)
    return QuotaWindow(
        name=name,
        cluster_queue="queue",
        flavor="default",
        resource="gpu",
        nominal=nominal,
        start_at=start,
        end_at=end,
        schedule=schedule,
        reclaim_lead_seconds=lead,
    )


@pytest.mark.parametrize(
    ("cron", "zone", "after", "want"),
    [
        pytest.param("0 20 * * *", "UTC", "2026-03-01T19:00", "2026-03-01T20:00", id="later on the same day"),
        pytest.param(
            "0 20 * * *", "UTC", "2026-03-01T20:00", "2026-03-02T20:00", id="not at the instant itself"
        ),
        pytest.param(
            "0 20 * * *", "Asia/Tokyo", "2026-03-01T10:59", "2026-03-01T11:00", id="Tokyo is 9 ahead"
        ),
        pytest.param("0 0 * * mon", "UTC", "2026-03-03T00:00", "2026-03-09T00:00", id="on the next Monday"),
        pytest.param("0 0 1 * mon", "UTC", "2026-03-30T12:00", "2026-04-01T00:00", id="either day counts"),
        pytest.param("0 0 29 2 *", "UTC", "2026-03-01T00:00", "2028-02-29T00:00", id="29 February"),
        # In Berlin the clock goes from 02:00 to 03:00 on 29 March 2026: 01:00 UTC.
        pytest.param(
            "30 2 * * *", BERLIN, "2026-03-28T12:00", "2026-03-29T01:00", id="02:30 skipped fires 03:00"
        ),
        pytest.param(
            "*/10 2 * * *", BERLIN, "2026-03-28T12:00", "2026-03-29T01:00", id="six skipped times fire once"
        ),
        pytest.param(
            "*/10 2 * * *", BERLIN, "2026-03-29T01:00", "2026-03-30T00:00", id="and not again that day"
        ),
        # In Santiago it goes from midnight to 01:00 on 6 September 2026: 04:00 UTC.
        pytest.param(
            "30 0 * * *", "America/Santiago", "2026-09-05T12:00", "2026-09-06T04:00", id="midnight skipped"
        ),
        # Lord Howe Island goes forward by half an hour, from 02:00 to 02:30, on 4 October 2026: 15:30 UTC.
        pytest.param(
            "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", "2026-10-03T15:30", id="half an hour"
        ),
        pytest.param(
            "30 2 * * *", BERLIN, "2026-03-29T12:00", "2026-03-30T00:30", id="and 02:30 the day after"
        ),
        pytest.param(
            "30 * * * *", BERLIN, "2026-03-29T00:30", "2026-03-29T01:30", id="hourly goes by real time"
        ),
        pytest.param(
            "30 * * * *", BERLIN, "2026-03-29T01:30", "2026-03-29T02:30", id="hourly fires 03:30 once"
        ),
        # It goes from 03:00 back to 02:00 on 25 October 2026: 01:00 UTC.
        pytest.param(
            "30 2 * * *", BERLIN, "2026-10-24T12:00", "2026-10-25T00:30", id="02:30 of two, the first"
        ),
        pytest.param("30 2 * * *", BERLIN, "2026-10-25T00:30", "2026-10-26T01:30", id="and not the second"),
        pytest.param("30 * * * *", BERLIN, "2026-10-25T00:30", "2026-10-25T01:30", id="hourly fires both"),
        pytest.param(
            "0 12 * * *", BERLIN, "2026-10-24T10:00", "2026-10-25T11:00", id="noon is noon after it"
        ),
    ],
)
def test_a_cron_line_fires_by_wall_clock_time(cron: str, zone: str, after: str, want: str) -> None:
    found = next_firing(cron, zone, at(after))

    assert found == at(want)
    assert last_firing(cron, zone, at(want)) == at(want)
    assert last_firing(cron, zone, at(want) - 1) is not None
    assert last_firing(cron, zone, at(want) - 1) <= at(after)  # type: ignore[operator]


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_day_that_never_comes_never_fires(cron: str) -> None:
    assert next_firing(cron, "UTC", at("2026-01-01T00:00")) is None
    assert last_firing(cron, "UTC", at("2026-01-01T00:00")) is None


@given(
    cron=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */5 * * *", "15 1-3 * * sun", "0 0 1,15 * *"]),
    zone=st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
    instant=st.floats(at("2010-06-01T00:00"), at("2030-01-01T00:00")),
)
def test_next_and_last_firing_are_neighbours(cron: str, zone: str, instant: float) -> None:
    following = next_firing(cron, zone, instant)
    assert following is not None
    assert following > instant
    assert last_firing(cron, zone, following) == following
    before = last_firing(cron, zone, instant)
    assert before is not None
    assert before <= instant
    assert next_firing(cron, zone, before) == following


def test_a_window_is_open_from_its_time_for_its_duration() -> None:
    window = make_window(cron="0 20 * * *", hours=10, zone=BERLIN)

    assert closes_at(window, at("2026-01-05T20:00", BERLIN)) == at("2026-01-06T06:00", BERLIN)
    assert closes_at(window, at("2026-01-06T05:59", BERLIN)) == at("2026-01-06T06:00", BERLIN)
    assert closes_at(window, at("2026-01-06T06:00", BERLIN)) is None
    assert opens_at(window, at("2026-01-06T06:00", BERLIN)) == at("2026-01-06T20:00", BERLIN)


def test_its_duration_is_real_time_when_clocks_are_set() -> None:
    window = make_window(cron="0 20 * * *", hours=10, zone=BERLIN)

    assert closes_at(window, at("2026-03-28T20:00", BERLIN)) == at("2026-03-29T07:00", BERLIN)
    assert closes_at(window, at("2026-10-24T20:00", BERLIN)) == at("2026-10-25T05:00", BERLIN)


def test_openings_without_a_gap_are_one() -> None:
    weekend = make_window(cron="0 0 * * sat,sun", hours=24)

    assert closes_at(weekend, at("2026-03-07T12:00")) == at("2026-03-09T00:00")


def test_a_window_that_opens_before_it_has_closed_stays_open() -> None:
    always = make_window(cron="* * * * *", hours=1)
    instant = at("2026-03-07T12:00:30")

    end = closes_at(always, instant)

    assert end is not None
    assert end > instant + HOUR
    assert closes_at(always, end) is not None


def test_of_windows_open_at_once_the_last_of_the_list_counts() -> None:
    long, short = (
        make_window("long", span=(0, 100), nominal=4),
        make_window("short", span=(20, 30), nominal=8),
    )

    assert [in_force([long, short], t) for t in (10, 20, 30, 100)] == [long, short, long, None]
    assert [in_force([short, long], t) for t in (10, 20, 30, 100)] == [long, long, long, None]
    assert [next_change_at([long, short], t) for t in (-1, 0, 20, 30, 100)] == [0, 20, 30, 100, inf]


def test_steps_report_changes_of_the_amount_alone_with_the_lead_of_their_window() -> None:
    windows = [
        make_window("less", span=(10, 40), nominal=2, lead=7),
        make_window("same", span=(20, 30), nominal=2, lead=5),
        make_window("more", span=(40, 50), nominal=9, lead=3),
    ]

    found = list(steps(windows, 4, after=0, until=1000, most=10))

    assert [
        (one.at, one.amount, one.window.name if one.window else "", one.lead_seconds) for one in found
    ] == [
        (10, 2, "less", 7),
        (40, 9, "more", 7),
        (50, 4, "", 3),
    ]


def test_steps_end_at_their_horizon_and_their_number() -> None:
    hourly = make_window(cron="0 * * * *", hours=0.5)

    assert len(list(steps([hourly], 4, after=0, until=5 * HOUR, most=100))) == 10
    assert len(list(steps([hourly], 4, after=0, until=inf, most=3))) == 3


def test_a_quota_that_moves_on_to_the_instant_of_a_change_has_changed() -> None:
    timeline = QuotaTimeline([make_window(span=(10, 20), nominal=1)], 4, now=0)

    amounts = []
    for now in (9, 10, 19, 20):
        timeline.go_to(now)
        amounts.append(timeline.amount)

    assert amounts == [4, 1, 1, 4]


def test_a_window_opens_next_after_an_instant_and_not_at_it() -> None:
    assert opens_at(make_window(span=(10, 20)), 9) == 10
    assert opens_at(make_window(span=(10, 20)), 10) is None


@pytest.mark.parametrize(
    ("window", "after", "until", "want"),
    [
        pytest.param(make_window(span=(10, 20)), 19, 99, [(10, 20)], id="a span that ends after the first"),
        pytest.param(make_window(span=(10, 20)), 20, 99, [], id="none that ends at it"),
        pytest.param(make_window(span=(10, 20)), 0, 10, [(10, 20)], id="a span that begins at the last"),
        pytest.param(make_window(span=(10, 20)), 0, 9, [], id="none that begins later"),
        pytest.param(
            make_window(cron="0 * * * *", hours=0.5),
            HOUR / 2,
            HOUR,
            [(HOUR, 1.5 * HOUR)],
            id="no opening that has just ended",
        ),
    ],
)
def test_between_two_instants_a_window_has(
    window: QuotaWindow, after: float, until: float, want: list[tuple[float, float]]
) -> None:
    assert list(spans(window, after=after, until=until)) == want


# A quota of 4: less from 10 to 20, as much from 30 to 40, more from 50 to 60.
THREE_SPANS = [
    make_window("less", span=(10, 20), nominal=1),
    make_window("same", span=(30, 40), nominal=4),
    make_window("more", span=(50, 60), nominal=9),
]


@pytest.mark.parametrize("looked_before", [True, False])
def test_the_steps_of_a_quota_are_those_that_are_yet_to_come(looked_before: bool) -> None:
    timeline = QuotaTimeline(THREE_SPANS, 4, now=0)
    if looked_before:
        assert [step.at for step in timeline.steps(until=inf, most=10)] == [10, 20, 50, 60]

    timeline.go_to(10)

    assert [(step.at, step.amount, step.lead_seconds) for step in timeline.steps(until=inf, most=10)] == [
        (20, 4, 0),
        (50, 9, 0),
        (60, 4, 0),
    ]
    assert [step.at for step in timeline.steps(until=inf, most=2)] == [20, 50]
    assert [step.at for step in timeline.steps(until=50, most=10)] == [20, 50]


def found_overlaps(*windows: QuotaWindow, after: float, until: float = inf, most: int = 100) -> list[str]:
    pairs = finish(overlaps(windows, after=after, until=until, most=most))
    return [f"{windows[one].name} {windows[other].name}" for one, other in pairs]


def test_overlaps_are_found_however_far_ahead_within_the_bound() -> None:
    monthly = make_window("monthly", cron="0 0 1 * *", hours=2)
    new_year = make_window("new-year", span=(at("2027-01-01T01:00"), at("2027-01-01T03:00")))
    noon = make_window("noon", cron="0 12 * * *", hours=1)
    after = at("2026-03-05T00:00")

    assert found_overlaps(monthly, new_year, noon, after=after) == ["monthly new-year"]
    assert found_overlaps(new_year, monthly, after=after) == ["new-year monthly"]
    assert found_overlaps(monthly, new_year, after=after, until=at("2026-12-31T00:00")) == []
    assert found_overlaps(monthly, new_year, after=after, most=9) == []


def test_one_that_opens_as_another_closes_does_not_overlap_it() -> None:
    windows = [make_window(f"w{hour}", cron=f"0 {hour} * * *", hours=1) for hour in range(24)]

    assert found_overlaps(*windows, after=at("2026-03-05T00:00")) == []


def test_each_of_many_that_are_open_together_is_named_with_each_other() -> None:
    windows = [make_window(f"w{n}", cron="0 6 * * *", hours=1 + n % 3) for n in range(64)]

    assert len(found_overlaps(*windows, after=at("2026-03-05T00:00"))) == 64 * 63 // 2


@pytest.mark.parametrize(
    ("openings", "want"),
    [
        pytest.param(4096, 2, id="once for its window and once for a first part of the openings"),
        pytest.param(4097, 3, id="and again for each further part"),
    ],
)
def test_the_search_for_overlaps_pauses(openings: int, want: int) -> None:
    window = make_window(cron="* * * * *", hours=0.5 / 60)

    assert sum(1 for _ in overlaps([window], after=40, until=inf, most=openings)) == want


# Two days before clocks go forward in Berlin, and nine before they go back on Lord Howe Island.
START = at("2026-03-27T00:00")
_CRONS = [
    "0 * * * *",
    "30 2 * * *",
    "0 20 * * *",
    "15 6 * * mon",
    "0 0 1 * *",
    "*/20 5-8 * * *",
    "0 0 31 2 *",
]
_WINDOWS = st.one_of(
    st.builds(
        make_window,
        cron=st.sampled_from(_CRONS),
        hours=st.sampled_from([0.25, 1, 4, 30]),
        zone=st.sampled_from(["UTC", BERLIN, "Australia/Lord_Howe"]),
        nominal=st.integers(0, 3),
        lead=st.sampled_from([0, 60, 3600]),
    ),
    st.builds(
        lambda start, hours, nominal: make_window(
            span=(START + start * HOUR, START + (start + hours) * HOUR), nominal=nominal
        ),
        st.integers(-30, 200),
        st.integers(1, 90),
        st.integers(0, 3),
    ),
)


@trying(40)
@given(windows=st.lists(_WINDOWS, max_size=4), hours=st.floats(0, 300))
def test_walking_along_turns_gives_what_asking_at_each_instant_gives(
    windows: list[QuotaWindow], hours: float
) -> None:
    after, until = START + hours * HOUR, START + (hours + 60) * HOUR

    # The plain way: every instant at which anything turns, and which window counts before and after it.
    instants, instant = [], after
    while (instant := next_change_at(windows, instant)) <= until:
        instants.append(instant)
    amounts = [4 if (one := in_force(windows, t)) is None else one.nominal for t in [after, *instants]]
    want = [(t, new) for t, old, new in zip(instants, amounts, amounts[1:], strict=False) if new != old]

    found = steps(windows, 4, after=after, until=until, most=10_000)
    assert [(one.at, one.amount) for one in found] == want
    for window in windows:
        open_then = {t for t in [after, *instants] if closes_at(window, t) is not None}
        open_by_span = {
            t
            for t in [after, *instants]
            if any(begins <= t < ends for begins, ends in spans(window, after=after, until=until))
        }
        assert open_by_span == open_then


def is_always_open(window: QuotaWindow) -> bool:
    """Return whether it opens again before it closes, day after day."""
    schedule = window.schedule
    if schedule is None or schedule.cron in ("15 6 * * mon", "0 0 1 * *"):
        return False
    return schedule.duration_seconds >= (HOUR if schedule.cron == "0 * * * *" else 24 * HOUR)


@trying(40)
@given(
    # For a window that is as good as always open, the closing time is found only as far as the search goes.
    windows=st.lists(_WINDOWS.filter(lambda one: not is_always_open(one)), max_size=4),
    instants=st.lists(st.floats(0, 300), min_size=1, max_size=6),
    most=st.integers(1, 5),
)
def test_going_on_with_time_gives_what_a_fresh_look_gives(
    windows: list[QuotaWindow], instants: list[float], most: int
) -> None:
    course = QuotaTimeline(windows, 4, now=START + instants[0] * HOUR)

    # A clock may be set back, too.
    for hours in instants:
        now = START + hours * HOUR
        course.go_to(now)

        counts, until = in_force(windows, now), now + 50 * HOUR
        assert course.present.in_force is counts
        assert course.amount == (4 if counts is None else counts.nominal)
        assert course.present.next_at() == next_change_at(windows, now)
        closed = {id(one): opens_at(one, now) for one in windows if closes_at(one, now) is None}
        want = {key: inf if opens is None else opens for key, opens in closed.items()}
        assert {id(one): opens for one, opens in course.present.openings()} == want
        ahead = list(steps(windows, 4, after=now, until=until, most=most))
        assert course.steps(until=until, most=most) == ahead


@trying(40)
@given(windows=st.lists(_WINDOWS, max_size=4), hours=st.floats(0, 300))
def test_the_sweep_finds_the_overlaps_that_asking_pair_by_pair_finds(
    windows: list[QuotaWindow], hours: float
) -> None:
    after, until = START + hours * HOUR, START + (hours + 60) * HOUR

    def is_together(one: QuotaWindow, other: QuotaWindow) -> bool:
        instant = after
        while instant <= until:
            if closes_at(one, instant) is not None and closes_at(other, instant) is not None:
                return True
            instant = next_change_at((one, other), instant)
        return False

    numbers = range(len(windows))
    want = [(n, m) for n in numbers for m in numbers if n < m and is_together(windows[n], windows[m])]
    assert list(finish(overlaps(windows, after=after, until=until, most=10_000))) == want
