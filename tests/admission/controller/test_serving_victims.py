"""A StatefulSet of inference gives way whole, and its quota comes free when its pods are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.controller.grouped import MEMBERS
from tests.admission.controller.serving import ShardVictims


@pytest.fixture
def scene() -> Iterator[ShardVictims]:
    """Give a scene in which the two replicas of `low` have served for a hundred seconds."""
    victims = ShardVictims()
    victims.submit_group()
    victims.run_for(100)
    assert victims.serving() == 2
    yield victims
    victims.close()


def test_the_quota_of_an_evicted_group_comes_free_though_nobody_makes_its_pods_anew(
    scene: ShardVictims,
) -> None:
    scene.makes_anew = False

    scene.submit("high", priority="high")
    scene.run_for(20)

    assert scene.members() == []
    assert scene.is_running("high")
    # It waits for pods, and not for quota: there is nobody who could use it.
    assert scene.condition("WaitingForReplacementPods")["status"] == "True"
    for name in MEMBERS:
        scene.cluster.create(scene.make_member(name))
    scene.finish("high")
    scene.run_for(20)
    assert scene.serving() == 2
    assert scene.condition("WaitingForReplacementPods")["status"] == "False"
