"""The successor of an eviction whose preemptor is gone, and whether it has been decided.

One ClusterQueue of eight GPUs. `victim` runs in it, is asked to save, and is needed by those that joined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from admission.decisions.decision import Evict
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import Preemption, PreemptionPolicy, StopPolicy
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    finished,
    make_cluster_queue,
    make_condition,
    make_workload,
    reserved,
    with_conditions,
)

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def make_world() -> World:
    world = World().put(
        AdmissionPolicy(name="policy", preemption=PreemptionRules()),
        make_cluster_queue("queue", quota=8, preemption=LOWER),
        reserved(make_workload("victim", gpus=8), at=1),
        reserved(make_workload("other", gpus=0), at=1),
    )
    world.settle()
    return world


def waiting(name: str, *, priority: int = 5, gpus: int = 9, queue: str = "queue") -> Workload:
    """Return one that waits; by its size it will go on waiting, whatever is tried."""
    return make_workload(name, gpus=gpus, priority=priority, queue=queue, at=500)


def join(world: World, name: str, *, priority: int = 5, uid: str = "", victim: str = "victim") -> None:
    """Let a Workload wait that needs the victim too, by the last cycle that tried it."""
    world.put(waiting(name, priority=priority)).settle()
    preemptor = world.get(name)
    eviction = Evict(
        key=world.get(victim).key,
        uid=world.get(victim).uid,
        resource_version="",
        reason=EvictionReason.PREEMPTED,
        message=f"for {name}",
        preemptor=preemptor.key,
        preemptor_uid=uid or preemptor.uid,
    )
    world.engine._workload_store.pending.join(preemptor.key, (eviction,))


def _none(world: World) -> None:
    pass


def _one(world: World) -> None:
    join(world, "b")


def _more_important(world: World) -> None:
    join(world, "a")
    join(world, "b", priority=6)


def _same_priority(world: World) -> None:
    join(world, "c")
    join(world, "b")


def _deleted(world: World) -> None:
    join(world, "a", priority=9)
    join(world, "b")
    world.remove(Workload, WorkloadKey(NAMESPACE, "a"))


def _created_again(world: World) -> None:
    join(world, "a", priority=9, uid="former")
    join(world, "b")


def _started(world: World) -> None:
    join(world, "a", priority=9)
    join(world, "b")
    world.put(reserved(replace(world.get("a"), pod_sets=world.get("other").pod_sets), at=900))


def _deactivated(world: World) -> None:
    join(world, "a", priority=9)
    join(world, "b")
    world.put(replace(world.get("a"), active=False))


def _ended(world: World) -> None:
    join(world, "a", priority=9)
    join(world, "b")
    world.put(finished(world.get("a")))


def _needs_another(world: World) -> None:
    join(world, "a", priority=9, victim="other")
    join(world, "b")


def _needs_none(world: World) -> None:
    join(world, "a")
    world.engine._workload_store.pending.join(world.get("a").key, ())


@pytest.mark.parametrize(
    ("history", "want"),
    [
        pytest.param(_none, None, id="no other needs it"),
        pytest.param(_one, "b", id="one needs it too"),
        pytest.param(_more_important, "b", id="the more important of two"),
        pytest.param(_same_priority, "b", id="at equal priority the first by name"),
        pytest.param(_deleted, "b", id="one that was deleted needs it no more"),
        pytest.param(_created_again, "b", id="one that was created again has not asked for it"),
        pytest.param(_started, "b", id="one that has started needs it no more"),
        pytest.param(_deactivated, "b", id="one that was deactivated waits for nothing"),
        pytest.param(_ended, "b", id="one that has ended waits for nothing"),
        pytest.param(_needs_another, "b", id="one that needs another victim is no successor of this one"),
        pytest.param(_needs_none, None, id="one that was tried again and needs no victim now"),
    ],
)
def test_the_heir_of_an_eviction(history: Callable[[World], None], want: str | None) -> None:
    world = make_world()
    history(world)

    successor = world.engine.workloads.joined_eviction_of(world.get("victim").key)

    assert (
        successor.preemptor.name if successor is not None and successor.preemptor is not None else None
    ) == want


def _settled(world: World) -> None:
    world.put(waiting("w")).settle()


def _comes(world: World) -> None:
    world.put(waiting("w"))


def _is_asked_about_again(world: World) -> None:
    _settled(world)
    done = make_condition(ConditionType.FINISHED, reason="Succeeded")
    world.put(with_conditions(world.get("other"), done))


def _beside(world: World) -> None:
    world.put(make_cluster_queue("queue", quota=8, preemption=LOWER, cohort="all"))
    world.put(make_cluster_queue("sibling", quota=0, cohort="all")).settle()
    world.put(waiting("w", queue="sibling"))


def _apart(world: World) -> None:
    world.put(make_cluster_queue("stranger", quota=0)).settle()
    world.put(waiting("w", queue="stranger"))


def _stopped(world: World) -> None:
    stopped = make_cluster_queue("queue", quota=8, preemption=LOWER, stop_policy=StopPolicy.HOLD)
    world.put(waiting("w"), stopped)


@pytest.mark.parametrize(
    ("history", "want"),
    [
        pytest.param(_none, False, id="no Workload waits"),
        pytest.param(_settled, False, id="the waiting one has been tried"),
        pytest.param(_comes, True, id="one has come and was not tried"),
        pytest.param(_is_asked_about_again, True, id="something came free since it was tried"),
        pytest.param(_beside, True, id="one waits in another queue of the cohort"),
        pytest.param(_apart, False, id="one waits where nothing is shared"),
        pytest.param(_stopped, False, id="the queue is stopped, so none will be tried"),
    ],
)
def test_whether_a_cycle_is_yet_to_try_a_workload(history: Callable[[World], None], want: bool) -> None:
    world = make_world()
    history(world)

    assert world.engine.queues.is_undecided("queue") is want
    world.settle()
    assert not world.engine.queues.is_undecided("queue")


def test_of_a_queue_that_is_not_there_nothing_is_undecided() -> None:
    assert not make_world().engine.queues.is_undecided("gone")
