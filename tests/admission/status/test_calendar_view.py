"""The entries of a policy's calendar as its status shows them: the state of each, and what uses it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.status.policy_status import policy_status
from api.policy import AdmissionPolicy, CapacityReservation, QuotaWindow
from tests.admission.calendar.test_advance_reservations import JOINS, T, keep
from tests.admission.calendar.test_quota_windows import window
from tests.admission.timed import TimedWorld
from tests.builders import make_cluster_queue

RAW = b'{"metadata": {"name": "policy", "generation": 1}, "spec": {}}'


def make_world(*windows: QuotaWindow, reservations: tuple[CapacityReservation, ...] = ()) -> TimedWorld:
    world = TimedWorld(now=T)
    policy = AdmissionPolicy(name="policy", quota_windows=windows, reservations=reservations)
    world.put(make_cluster_queue(quota=8), policy)
    return world


def status_of(world: TimedWorld, raw: bytes = RAW) -> dict[str, Any]:
    """Return the status as it is written, that of `raw` where nothing is."""
    view = world.engine.queues.policy_view("policy")
    assert view is not None
    written = policy_status(raw, view, now=world.now)
    status: dict[str, Any] = msgspec.json.decode(written or raw)["status"]
    return status


def at(world: TimedWorld, seconds: float) -> TimedWorld:
    """Return the world as it is so long after T."""
    world.run(until=T + seconds)
    world.cycle()
    return world


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(50, {"state": "Upcoming", "opensAt": "1970-01-01T00:20:00Z"}, id="long before"),
        pytest.param(140, {"state": "Lead", "opensAt": "1970-01-01T00:20:00Z"}, id="within its lead"),
        pytest.param(200, {"state": "Active", "closesAt": "1970-01-01T00:21:40Z"}, id="while it is open"),
        pytest.param(300, {"state": "Over"}, id="after it"),
    ],
)
def test_the_state_of_a_window(seconds: float, want: dict[str, str]) -> None:
    """It lowers the quota from 8 to 2 at 200 s, for 100 s, and is heeded from 140 s on."""
    world = make_world(window("low", 200, 300, 2, lead=60))

    (shown,) = status_of(at(world, seconds))["quotaWindows"]

    fixed = {"name": "low", "clusterQueue": "queue", "flavor": "default", "resource": "gpu"}
    assert shown == {**fixed, "nominalQuota": "2", **want}


def test_a_window_that_raises_the_quota_has_no_lead_before_it_opens() -> None:
    world = make_world(window("high", 200, 300, 16, lead=60))

    assert status_of(at(world, 150))["quotaWindows"][0]["state"] == "Upcoming"


def test_of_two_open_windows_the_one_that_does_not_count_says_so() -> None:
    world = make_world(window("rule", 0, 300, 4), window("exception", 0, 300, 2))

    shown = status_of(at(world, 10))["quotaWindows"]

    want = "quota window exception is open too and counts, as the later in the list"
    assert [(one["state"], one.get("message")) for one in shown] == [("Active", want), ("Active", None)]


def test_a_window_without_effect_is_refused_and_says_why() -> None:
    world = make_world(window("lost", 0, 300, 4, queue="nowhere"))

    (shown,) = status_of(at(world, 10))["quotaWindows"]

    want = 'spec.quotaWindows[0].clusterQueue is "nowhere": there is no such ClusterQueue'
    assert (shown["state"], shown["message"]) == ("Refused", want)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(50, ("Upcoming", 0, None), id="before its start"),
        pytest.param(110, ("Active", 1, ["team/member"]), id="with a member in it"),
        pytest.param(160, ("Active", 0, None), id="when its member has ended"),
        pytest.param(500, ("Over", 0, None), id="after its end"),
    ],
)
def test_the_state_of_a_reservation_and_its_users(
    seconds: float, want: tuple[str, int, list[str] | None]
) -> None:
    world = make_world(reservations=(keep(6, 100, 500),))
    world.submit("member", 6, runs=50, annotations=JOINS)

    (shown,) = status_of(at(world, seconds))["reservations"]

    assert (shown["state"], shown["userCount"], shown.get("users")) == want
    kept = [{"flavor": "default", "resource": "gpu", "amount": "6"}]
    assert shown.get("resources") == (None if want[0] == "Over" else kept)


def test_a_reservation_that_keeps_nothing_says_why() -> None:
    world = make_world(reservations=(keep(9, 100, 500), keep(8, 100, 500, name="ok")))

    shown = status_of(at(world, 10))["reservations"]

    assert [one["state"] for one in shown] == ["Refused", "Upcoming"]
    assert shown[0]["message"].startswith("spec.reservations[0].resources[0].amount is 9")


def test_a_status_that_says_it_all_is_not_written_again() -> None:
    world = at(make_world(window("low", 200, 300, 2), reservations=(keep(6, 400, 500),)), 10)
    view = world.engine.queues.policy_view("policy")
    assert view is not None
    written = policy_status(RAW, view, now=world.now)
    assert written is not None

    assert policy_status(written, view, now=world.now + 30) is None


def test_the_policy_of_a_reservation_is_looked_at_again_when_a_workload_begins_to_use_it() -> None:
    world = make_world(reservations=(keep(6, 100, 500),))
    world.submit("member", 6, runs=50, at=T + 200, annotations=JOINS)
    at(world, 150)
    world.engine.drain_touched()

    at(world, 210)

    assert world.engine.drain_touched().policies == {"policy"}


@pytest.mark.parametrize("seconds", [140, 200, 300])
def test_the_policy_is_looked_at_again_whenever_a_window_turns(seconds: float) -> None:
    world = make_world(window("low", 200, 300, 2, lead=60))
    at(world, seconds - 1)
    world.engine.drain_touched()

    assert world.engine.next_wake_at() == T + seconds
    at(world, seconds)

    assert world.engine.drain_touched().policies == {"policy"}
