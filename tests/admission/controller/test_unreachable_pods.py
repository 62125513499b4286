"""A pod on a node that is lost, and the controller that gives it up: the whole loop on virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.kube.errors import Conflict
from api.parsing.times import to_rfc3339
from tests.admission.controller.cluster import Object
from tests.admission.controller.stage import Stage
from tests.admission.controller.virtualtime import end

POD = ("Pod", "team", "p")
NODE = ("Node", "", "n1")
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a cluster with a pod that has 30 s to end on a healthy node."""
    stage = Stage()
    stage.cluster.create(named("Node", "n1", spec={"taints": []}))
    stage.cluster.create(
        named(
            "Pod",
            "p",
            namespace="team",
            annotations={"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
            deletionTimestamp=to_rfc3339(stage.loop.now() + 30),
            deletionGracePeriodSeconds=30,
            spec={"nodeName": "n1"},
        )
    )
    yield stage
    end(stage.loop)


def named(kind: str, name: str, *, spec: Object, **metadata: Any) -> Object:
    """Return an object of Kubernetes' own."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def lose(stage: Stage) -> None:
    """Let Kubernetes find that nothing reaches the node."""
    stage.cluster.edit(NODE, lambda node: node["spec"]["taints"].append(UNREACHABLE))


def written(stage: Stage) -> list[str]:
    """Return what was written to the pod, in order."""
    return [str(write.verb) for write in stage.cluster.written if write.kind == "Pod"]


def test_a_pod_on_a_lost_node_is_failed_and_gone_once_its_time_has_come(stage: Stage) -> None:
    stage.lead()
    lose(stage)
    stage.wait(85)
    assert written(stage) == []

    stage.wait(10)

    assert written(stage) == ["strategic_patch", "delete"]
    assert POD not in stage.cluster.objects


def test_a_node_that_is_lost_later_ends_its_pod_then(stage: Stage) -> None:
    stage.lead()
    stage.wait(200)
    assert written(stage) == []

    lose(stage)
    stage.wait(5)

    assert POD not in stage.cluster.objects


def test_a_refused_write_is_tried_again_after_a_pause(stage: Stage) -> None:
    lose(stage)
    leader = stage.lead()
    leader.line.faults.errors.append(Conflict("try again", status=409))

    stage.wait(120)

    assert POD not in stage.cluster.objects


def test_the_next_leader_ends_what_the_last_one_has_begun(stage: Stage) -> None:
    lose(stage)
    given_up = {"phase": "Failed", "conditions": [{"type": "KueueFailureRecovery"}]}
    stage.cluster.edit(POD, lambda pod: pod.update(status=given_up))
    stage.wait(95)

    stage.lead()
    stage.wait(5)

    assert written(stage) == ["delete"]
