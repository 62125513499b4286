"""Usage: GPU-hours that Workloads have used, waited for and lost, also of objects that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from admission.answers.selection import BadSelectionError
from admission.answers.usage import UsageBy, UsageItem, UsageQuery, read_usage_query, usage
from api.keys import CHECKPOINT_TIME, SUBMITTER
from api.queueing import ResourceFlavor
from api.reasons import ConditionType
from api.workload import Admission, PodSetAssignment, Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admitted,
    make_cluster_queue,
    make_condition,
    make_workload,
    released,
    with_conditions,
)

HOUR = 3600.0
NOW = 100 * HOUR
_PODS = PodSetAssignment(name="main", count=1, flavors={"gpu": "default"}, usage={"gpu": 8})
HOLDS = Admission(cluster_queue="queue", pod_sets=(_PODS,))


def ran(
    name: str,
    *,
    since: float,
    until: float | None = None,
    past: int = 0,
    annotations: Mapping[str, str] | None = None,
) -> Workload:
    """Return a Workload with 8 GPUs, created at hour 80, whose last attempt began at that hour."""
    workload = admitted(
        make_workload(name, gpus=8, at=80 * HOUR, annotations=annotations or {}), HOLDS, at=since * HOUR
    )
    if until is not None:
        workload = with_conditions(workload, make_condition(ConditionType.FINISHED, at=until * HOUR))
    evictions = {("Preempted", ""): 1} if past else {}
    return replace(workload, accumulated_execution_seconds=int(past * HOUR), evictions=evictions)


def used(
    *workloads: Workload, since: float = 0.0, by: UsageBy = UsageBy.QUEUE, deleted: tuple[Workload, ...] = ()
) -> tuple[UsageItem, ...]:
    """Return the usage since that hour."""
    world = World(now=NOW)
    world.put(
        make_cluster_queue("queue", quota=100), ResourceFlavor(name="default", cost_per_device_hour=2.0)
    )
    world.put(*workloads, *deleted)
    for one in deleted:
        world.remove(Workload, one.key)
    query = UsageQuery(by=by, since=since * HOUR)
    return usage(world.engine, query, sees=lambda namespace: namespace == NAMESPACE, now=NOW).items


@pytest.mark.parametrize(
    ("workload", "since", "want"),
    [
        pytest.param(ran("w", since=90, until=95), 0, (40, 10, 0, 80), id="waits until it starts, and ends"),
        pytest.param(ran("w", since=90), 0, (80, 10, 0, 160), id="runs until now"),
        pytest.param(ran("w", since=90), 97, (24, 0, 0, 48), id="what it used before does not count"),
        pytest.param(ran("w", since=90, past=4), 0, (112, 6, 32, 224), id="an evicted attempt is lost"),
        pytest.param(
            ran("w", since=90, past=4, annotations={CHECKPOINT_TIME: "1970-01-04T17:00:00Z"}),
            0,
            (112, 6, 0, 224),
            id="a checkpoint keeps it",
        ),
        pytest.param(ran("w", since=90, past=4), 88, (96, 0, 16, 192), id="an attempt that ended since then"),
        pytest.param(ran("w", since=90, past=4), 91, (72, 0, 0, 144), id="an attempt that ended before"),
        pytest.param(make_workload(gpus=8, at=80 * HOUR), 0, (0, 20, 0, 0), id="it has only waited"),
        pytest.param(make_workload(gpus=8, at=0.0, active=False), 0, (0, 0, 0, 0), id="it is deactivated"),
        pytest.param(
            replace(released(ran("w", since=90), at=95 * HOUR), accumulated_execution_seconds=5 * 3600),
            0,
            (40, 15, 40, 0),
            id="it waits again, and no object says where it ran",
        ),
    ],
)
def test_hours_of_a_workload(
    workload: Workload, since: float, want: tuple[float, float, float, float]
) -> None:
    (item,) = used(workload, since=since)

    assert (item.gpu_hours_used, item.hours_waited, item.gpu_hours_lost, item.cost) == want


def test_what_ended_before_is_left_out() -> None:
    assert used(ran("w", since=90, until=95), since=96) == ()


@pytest.mark.parametrize(
    ("workload", "since", "want"),
    [
        pytest.param(ran("w", since=90, until=95), 0, (1, 40, 10, 80), id="of one day"),
        pytest.param(ran("w", since=90, until=98), 0, (1, 64, 10, 128), id="of two days"),
        pytest.param(ran("w", since=90, until=98), 96, (1, 16, 0, 32), id="of the second day"),
        pytest.param(ran("w", since=90, until=95), 84, (1, 20, 5, 40), id="of a share of the first day"),
        pytest.param(ran("w", since=90), 0, (1, 80, 10, 160), id="until it was deleted while it ran"),
        pytest.param(make_workload(gpus=8, at=80 * HOUR), 0, (1, 0, 20, 0), id="of one that only waited"),
    ],
)
def test_the_usage_of_a_deleted_workload_counts(
    workload: Workload, since: float, want: tuple[float, ...]
) -> None:
    (item,) = used(deleted=(workload,), since=since)

    assert (item.workloads, item.gpu_hours_used, item.hours_waited, item.cost) == want


def test_what_is_deleted_is_summed_with_what_is_there_and_hidden_as_well() -> None:
    hers = {SUBMITTER: "https://login.example.com/ada"}
    gone = (ran("a", since=90, past=1, annotations=hers), ran("b", since=90, annotations=hers))
    hidden = replace(ran("c", since=80), key=WorkloadKey("hidden", "c"), uid="hidden")

    (item,) = used(ran("d", since=99, annotations=hers), by=UsageBy.USER, deleted=(*gone, hidden))

    assert (item.name, item.workloads, item.evictions) == ("https://login.example.com/ada", 3, 1)
    assert (item.gpu_hours_used, item.gpu_hours_lost) == (176, 8)


def test_a_workload_that_is_deleted_and_created_again_counts_twice() -> None:
    before, again = ran("w", since=90, until=95), replace(ran("w", since=98), uid="second")

    (item,) = used(before, again)

    assert (item.workloads, item.gpu_hours_used) == (2, 56)


@pytest.mark.parametrize(
    ("by", "want"),
    [
        pytest.param(UsageBy.QUEUE, [("queue", 2, 120)], id="by ClusterQueue"),
        pytest.param(UsageBy.NAMESPACE, [(NAMESPACE, 2, 120)], id="by namespace, and none that is hidden"),
        pytest.param(UsageBy.USER, [("ada", 1, 80), ("", 1, 40)], id="by user, the largest first"),
    ],
)
def test_usage_is_summed(by: UsageBy, want: list[tuple[str, int, float]]) -> None:
    hers, unknown = ran("a", since=90, annotations={SUBMITTER: "ada"}), ran("b", since=95)
    hidden = replace(ran("c", since=80), key=WorkloadKey("hidden", "c"), uid="hidden")

    found = used(hers, unknown, hidden, by=by)

    assert [(one.name, one.workloads, one.gpu_hours_used) for one in found] == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("12h", NOW - 12 * HOUR, id="a duration"),
        pytest.param("2d", NOW - 48 * HOUR, id="days"),
        pytest.param("1970-01-02T00:00:00Z", 24 * HOUR, id="a time"),
        pytest.param("9" * 40 + "d", 0.0, id="before all times"),
    ],
)
def test_the_time_is_read(text: str, want: float) -> None:
    assert read_usage_query({"since": text}, now=NOW).since == want


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({"since": "yesterday"}, "since='yesterday': expected a time such as", id="no time"),
        pytest.param({"since": "9" * 5000 + "d"}, "since='9999", id="too long"),
        pytest.param({"by": "quue"}, "'quue' is no word for by; did you mean queue?", id="no grouping"),
        pytest.param({"sinse": "1d"}, "'sinse' is no query parameter; did you mean since?", id="misspelt"),
    ],
)
def test_what_cannot_be_read_is_named(query: dict[str, str], want: str) -> None:
    with pytest.raises(BadSelectionError) as found:
        read_usage_query(query, now=NOW)

    assert str(found.value).startswith(want)
    assert len(str(found.value)) < 250
