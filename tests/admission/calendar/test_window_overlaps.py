"""Overlaps of quota windows: searched in steps, kept until the windows change, reported while they matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine.engine import Engine
from api.policy import AdmissionPolicy, QuotaWindow
from tests.builders import World, make_cluster_queue
from tests.queues.quota.test_quota_windows import HOUR, make_window

DAY = 24 * HOUR
DOZENS = 64


def make_world(*windows: QuotaWindow) -> World:
    return World(now=DAY).put(make_cluster_queue(), AdmissionPolicy(name="policy", quota_windows=windows))


def daily(*hours: int, lasts: float = 1) -> list[QuotaWindow]:
    return [make_window(f"w{n}", cron=f"0 {hour} * * *", hours=lasts) for n, hour in enumerate(hours)]


def reported(engine: Engine) -> list[str]:
    """Return the overlaps that the policy's status lists."""
    view = engine.queues.policy_view("policy")
    assert view is not None
    words = [one.split('"') for one in view.calendar_problems]
    return [f"{name} {rest.split()[4].rstrip(';')}" for _, name, rest in words]


def test_dozens_of_windows_are_compared_in_steps_and_reported_when_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(*daily(*(n % 24 for n in range(DOZENS))))

    steps = 0
    while world.engine.catch_up(now=world.now):
        steps += 1
    monkeypatch.setattr("admission.calendar.window_overlaps.overlaps", None)  # no second search

    assert steps > DOZENS
    assert "w24 w0" in reported(world.engine)
    assert len(reported(world.engine)) == 24 + 2 * 16


def test_a_status_read_before_all_have_been_compared_is_complete_all_the_same() -> None:
    world = make_world(*daily(1, 1, 2))

    world.engine.catch_up(now=world.now)

    assert reported(world.engine) == ["w1 w0"]


def test_windows_that_have_changed_are_compared_again() -> None:
    world = make_world(*daily(1, 1, 2))
    assert reported(world.engine) == ["w1 w0"]

    world.put(AdmissionPolicy(name="policy", quota_windows=tuple(daily(1, 2, 2))))

    assert reported(world.engine) == ["w2 w1"]


def test_windows_of_other_quotas_do_not_overlap() -> None:
    one, other = daily(1, 1)
    world = make_world(one, replace(other, cluster_queue="other"))
    world.put(make_cluster_queue("other"))

    assert reported(world.engine) == []


def test_a_window_that_is_over_overlaps_no_other() -> None:
    world = make_world(
        make_window("course", span=(0, 2 * DAY)), make_window("exam", span=(DAY, 3 * DAY)), *daily(1)
    )
    assert reported(world.engine) == ["exam course", "w0 course", "w0 exam"]

    world.now = 2 * DAY
    world.engine.wake_heads(now=world.now)

    assert reported(world.engine) == ["w0 exam"]


def test_what_comes_within_a_year_only_is_found_as_it_draws_near() -> None:
    world = make_world(make_window("fair", span=(400 * DAY, 401 * DAY)), *daily(1))
    assert reported(world.engine) == []

    world.now = 40 * DAY
    world.engine.wake_heads(now=world.now)

    assert reported(world.engine) == ["w0 fair"]
