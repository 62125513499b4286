"""Questions before submitting, against what happens when the Workload is submitted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.answers.what_if import Asker, Question, WhatIf, what_if
from admission.cli.explaining.what_if import what_if_lines
from admission.controller.queries.copies import ask_in_copy
from api.keys import EXPECTED_RUNTIME_SECONDS, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, QUEUE_NAME
from api.parsing.times import to_rfc3339, to_seconds
from api.policy import BackfillMode
from tests.admission.timed import TimedWorld, make_policy
from tests.builders import NAMESPACE, make_cluster_queue
from tests.examples import trying

NOW = 1000.0
Work = tuple[int, int, int]


def manifest(gpus: int, seconds: int, priority: int) -> dict[str, Any]:
    """Return the Workload that is asked about, as a client writes it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"gpu": str(gpus)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    annotations = {EXPECTED_RUNTIME_SECONDS: str(seconds)}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "asked",
            "namespace": NAMESPACE,
            "uid": "asked",
            "creationTimestamp": to_rfc3339(NOW),
            "annotations": annotations,
        },
        "spec": {"queueName": "own", "priority": priority, "podSets": [pod_set]},
    }


def busy_world(works: list[Work]) -> TimedWorld:
    """Return a world of 8 GPUs where these Workloads run or wait, each with GPUs, seconds and a priority."""
    world = TimedWorld(now=NOW)
    world.put(make_cluster_queue("own", quota=8), make_policy(BackfillMode.CONSERVATIVE))
    for number, (gpus, seconds, priority) in enumerate(works):
        world.submit(f"w{number}", gpus, runs=seconds, queue="own", priority=priority)
    world.run(until=NOW)
    return world


work = st.tuples(st.integers(1, 8), st.sampled_from([60, 300, 900]), st.sampled_from([0, 0, 5]))


@trying(40)
@given(works=st.lists(work, max_size=6), asked=work)
def test_a_submission_starts_no_later_than_the_answer_says(works: list[Work], asked: Work) -> None:
    world = busy_world(works)
    question = Question(objects=(manifest(*asked),), namespace=NAMESPACE)

    answer: WhatIf = ask_in_copy(lambda: what_if(world.engine, question, ask_in_copy, Asker(now=NOW)))
    gpus, seconds, priority = asked
    world.submit("asked", gpus, runs=seconds, queue="own", priority=priority)
    world.run()

    (one,) = answer.workloads
    assert one.starts_at is not None
    assert world.started["asked"] <= to_seconds(one.starts_at)
    assert (one.earliest_start is None) is (one.latest_start is None) is one.starts_now
    if one.earliest_start is not None and one.latest_start is not None:
        assert one.earliest_start <= one.starts_at <= one.latest_start


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        pytest.param(BackfillMode.CONSERVATIVE, (True, NOW + 600, NOW, NOW + 600), id="a promise ends it"),
        # Twice the wait and ten minutes, as long as nothing is known of such estimates.
        pytest.param(BackfillMode.EASY, (False, NOW + 600, NOW, NOW + 1800), id="a forecast may be late"),
    ],
)
def test_a_submission_that_waits_has_an_interval(
    mode: BackfillMode, want: tuple[bool, float, float, float]
) -> None:
    world = TimedWorld(now=NOW)
    world.put(make_cluster_queue("own", quota=8), make_policy(mode))
    for name in ("running", "head"):
        world.submit(name, 8, runs=300, queue="own")
    world.run(until=NOW)
    question = Question(objects=(manifest(8, 60, 0),), namespace=NAMESPACE)

    answer = ask_in_copy(lambda: what_if(world.engine, question, ask_in_copy, Asker(now=NOW)))
    (one,), (line, *_) = answer.workloads, what_if_lines(answer, now=NOW)

    assert (one.is_promised, one.starts_at, one.earliest_start, one.latest_start) == (
        want[0],
        *map(to_rfc3339, want[1:]),
    )
    assert ("in four of five cases between" in line) is not one.is_promised


@trying(20)
@given(works=st.lists(work, min_size=1, max_size=6), asked=work)
def test_a_question_leaves_the_engine_as_it_is(works: list[Work], asked: Work) -> None:
    plain, queried = busy_world(works), busy_world(works)
    question = Question(objects=(manifest(*asked),), namespace=NAMESPACE)

    ask_in_copy(lambda: what_if(queried.engine, question, ask_in_copy, Asker(now=NOW)))
    plain.run()
    queried.run()

    assert queried.started == plain.started


def pod(name: str, gpus: int = 4, *, total: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a pod as a user writes it; `total`: of a group with so many."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"gpu": str(gpus)}}}
    metadata: dict[str, Any] = {"name": name, "labels": {QUEUE_NAME: "own"}, "creationTimestamp": None}
    if total:
        metadata["labels"][POD_GROUP_NAME] = "gang"
        metadata["annotations"] = {POD_GROUP_TOTAL_COUNT: str(total)}
    body = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def asked_about(*objects: dict[str, Any], busy: int = 0) -> WhatIf:
    """Return the answer about these objects where so many of 8 GPUs are in use for 300 s."""
    world = busy_world([(busy, 300, 0)] if busy else [])
    question = Question(objects=objects, namespace=NAMESPACE)
    return ask_in_copy(lambda: what_if(world.engine, question, ask_in_copy, Asker(now=NOW)))


@pytest.mark.parametrize(
    ("objects", "busy", "want"),
    [
        pytest.param((pod("a"),), 0, [("Pod", "a", NOW)], id="a pod starts now"),
        pytest.param((pod("a"),), 8, [("Pod", "a", NOW + 300)], id="a pod waits"),
        pytest.param((pod("a"), pod("b")), 0, [("Pod", "a", NOW), ("Pod", "b", NOW)], id="each by itself"),
        pytest.param(
            (pod("a", total=2), pod("b", total=2)), 0, [("", "gang", NOW)], id="a group as a whole"
        ),
        pytest.param(
            (pod("a", total=2), pod("b", total=2)), 4, [("", "gang", NOW + 300)], id="a group waits"
        ),
        pytest.param((pod("a", 9),), 0, [("Pod", "a", None)], id="a pod that is too large never starts"),
    ],
)  # fmt: skip
def test_pods_are_asked_about(
    objects: tuple[dict[str, Any], ...], busy: int, want: list[tuple[str, str, float | None]]
) -> None:
    answer = asked_about(*objects, busy=busy)

    found = [
        (one.owner_kind or "", one.owner_name or one.name, one.starts_at and to_seconds(one.starts_at))
        for one in answer.workloads
    ]
    assert answer.notes == ()
    assert found == want


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            (pod("a", total=3), pod("b", total=3)),
            "pod group team/gang would wait for 1 more of its 3 pods",
            id="an incomplete group",
        ),
        pytest.param((pod("a", total=-1),), "Pod team/a: ", id="a number that is none"),
    ],
)
def test_pods_that_would_not_be_queued_are_named(objects: tuple[dict[str, Any], ...], want: str) -> None:
    answer = asked_about(*objects)

    assert answer.workloads == ()
    assert [one[: len(want)] for one in answer.notes] == [want]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"nodeName": "n1"}, id="it runs on a node"),
        pytest.param(None, id="it names no queue"),
    ],
)
def test_other_pods_are_what_they_are(changed: dict[str, Any] | None) -> None:
    other = pod("a", **(changed or {}))
    if changed is None:
        other["metadata"]["labels"] = {}

    answer = asked_about(other)

    assert (answer.workloads, answer.notes) == ((), ())


def test_a_pod_whose_workload_is_given_is_not_counted_twice() -> None:
    owned = manifest(4, 60, 0)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [reference]

    answer = asked_about(owned, pod("a"))

    assert [one.name for one in answer.workloads] == ["asked"]
