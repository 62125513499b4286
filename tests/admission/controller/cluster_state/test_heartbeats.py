"""Kubelets that stop renewing their Leases: when nodes count as quiet, and when the cause is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from admission.controller.cluster_state.heartbeats import Heartbeats
from api.kube.informer import Change, ChangeType
from api.objects.common import Meta, NamedObject
from tests.admission.controller.fakes import FakeClock

START = 1_000.0
NODES = tuple(f"n{number}" for number in range(8))


@dataclass
class Fleet:
    """Eight nodes whose Leases are seen; what is reported of them."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(START))
    reported: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heartbeats = Heartbeats(self.clock, self.reported.append)
        self.renew(*NODES)

    def renew(self, *nodes: str, type_: ChangeType = ChangeType.MODIFIED) -> None:
        """Let the Leases of these nodes be renewed."""
        for name in nodes:
            lease = NamedObject(metadata=Meta(name=name, namespace="kube-node-lease", uid=name))
            self.heartbeats.take(Change(type_, lease, None, None))

    def run(self, seconds: int, *renewing: str) -> None:
        """Let time pass, with a check every second; these nodes renew every ten seconds."""
        for second in range(1, seconds + 1):
            self.clock.at += 1.0
            if second % 10 == 0:
                self.renew(*renewing)
            self.heartbeats.check()

    def quiet(self) -> dict[str, float]:
        """Return the quiet nodes, and since when."""
        found = {name: self.heartbeats.quiet_since(name) for name in NODES}
        return {name: since for name, since in found.items() if since is not None}


def test_a_node_is_quiet_once_a_renewal_is_missing_and_no_longer_when_it_is_heard() -> None:
    fleet = Fleet()

    fleet.run(14, *NODES[1:])
    assert fleet.quiet() == {}
    fleet.run(1, *NODES[1:])
    assert fleet.quiet() == {"n0": START}
    assert fleet.reported == ["n0"]

    fleet.renew("n0")
    assert fleet.quiet() == {}
    assert fleet.reported == ["n0", "n0"]


def test_while_many_are_quiet_none_is_and_not_before_one_more_interval_has_passed() -> None:
    fleet = Fleet()

    fleet.run(30)
    assert fleet.quiet() == {}

    # The watch comes back, and brings all renewals but one.
    fleet.renew(*NODES[1:])
    fleet.run(14, *NODES[1:])
    assert fleet.quiet() == {}
    fleet.run(1, *NODES[1:])
    assert fleet.quiet() == {"n0": START}


def test_what_a_suspended_process_has_not_heard_says_nothing() -> None:
    fleet = Fleet()
    fleet.run(10, *NODES)

    fleet.clock.at += 60.0
    fleet.renew(*NODES[2:])
    fleet.heartbeats.check()

    assert fleet.quiet() == {}
    fleet.renew("n1")
    fleet.run(16, *NODES[1:])
    assert set(fleet.quiet()) == {"n0"}


@pytest.mark.parametrize(
    ("type_", "quiet"),
    [
        pytest.param(ChangeType.DELETED, set(), id="a Lease that is deleted with its node"),
        pytest.param(ChangeType.MODIFIED, {"n0"}, id="a Lease that is no longer renewed"),
    ],
)
def test_after_its_last_change(type_: ChangeType, quiet: set[str]) -> None:
    fleet = Fleet()
    fleet.renew("n0", type_=type_)

    fleet.run(20, *NODES[1:])

    assert set(fleet.quiet()) == quiet
