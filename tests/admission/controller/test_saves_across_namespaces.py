"""A victim that saves for a preemptor of another namespace: as within one, but no name of it is written.

The preemptor is a Workload without a Job in the namespace `hush`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from admission.decisions.api_writes import Purpose
from tests.admission.controller.cluster import Object
from tests.admission.controller.tenancy import is_true
from tests.admission.controller.victims import Victims, made, running_low

HUSH = "hush"
PREEMPTOR = ("Workload", HUSH, "hush-large")


@pytest.fixture
def scene() -> Iterator[Victims]:
    """Give a scene in which `low` has run for a hundred seconds, and another namespace uses its queue."""
    victims = running_low()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUSH}, "spec": {}}
    victims.cluster.create(namespace)
    victims.cluster.create(made("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace=HUSH))
    yield victims
    victims.close()


def come(scene: Victims) -> Object:
    """Create the preemptor, and return it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "queueName": "lq",
        "active": True,
        "priority": 9,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    scene.cluster.create(made("Workload", PREEMPTOR[2], spec, namespace=HUSH))
    return scene.cluster.objects[PREEMPTOR]


def is_admitted(scene: Victims) -> bool:
    """Return whether the preemptor has what it came for."""
    return is_true(scene.cluster.objects[PREEMPTOR], "Admitted")


def test_nothing_that_the_victims_tenant_reads_names_the_preemptor(scene: Victims) -> None:
    preemptor = come(scene)
    scene.run_for(30)
    request = json.loads(scene.request("low"))
    scene.save("low")
    scene.run_for(30)

    assert (request["preemptorUid"], "preemptor" in request) == (preemptor["metadata"]["uid"], False)
    read = [obj for key, obj in scene.cluster.objects.items() if key[1] == "team"]
    assert [obj["metadata"]["name"] for obj in read if HUSH in msgspec.json.encode(obj).decode()] == []
    assert (is_admitted(scene), scene.evictions["low"]) == (True, 1)


@pytest.mark.parametrize(
    "step", [pytest.param(step, id=step) for step in (Purpose.REQUEST_EVICTION, Purpose.EVICT)]
)
def test_the_next_leader_finds_the_preemptor_when_the_controller_dies_after(
    step: Purpose, scene: Victims
) -> None:
    scene.dies_after = step
    come(scene)
    scene.run_for(60)
    scene.save("low")
    scene.run_for(100)

    assert scene.dies_after is None, "the step was never reached"
    assert (is_admitted(scene), scene.evictions["low"]) == (True, 1)


def test_the_victim_runs_on_when_the_preemptor_goes(scene: Victims) -> None:
    come(scene)
    scene.run_for(30)
    assert scene.asked("low")

    scene.cluster.delete(PREEMPTOR)
    scene.run_for(200)

    assert scene.is_running("low")
    assert (scene.asked("low"), scene.request("low"), scene.evictions["low"]) == ({}, "", 0)


def test_an_annotation_of_an_earlier_release_that_names_it_is_understood(scene: Victims) -> None:
    come(scene)
    scene.run_for(30)
    request = {**json.loads(scene.request("low")), "preemptor": f"{HUSH}/{PREEMPTOR[2]}"}
    scene.annotate_workload("low", json.dumps(request))

    scene.save("low")
    scene.run_for(30)

    assert (is_admitted(scene), scene.evictions["low"]) == (True, 1)
