"""Evictions and the budgets that they keep to, asked alike of the embedded API server and of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import RestError
from tests.integration.conftest import Cluster
from tests.integration.manifests import Object, condition
from tests.integration.pods import create, make_pod, wait_gone, wait_pod
from tests.integration.scene import Scene

pytestmark = pytest.mark.xdist_group("stateful")

PODS = ("a", "b", "c")
READY = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """Give a scene in which three pods without an owner run, and no controller queues them."""
    scene = cluster.new_scene()
    for name in PODS:
        create(scene, make_pod(name, is_held=False, queue=None, labels={"app": "web"}))
    for name in PODS:
        wait_pod(scene, name, "Running")
    yield scene
    for pod in scene.rest.get(scene.pods)["items"]:
        scene.rest.patch(f"{scene.pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
        scene.rest.delete(f"{scene.pods}/{pod['metadata']['name']}")
    wait_gone(scene, *PODS)


def create_budget(scene: Scene, **spec: Any) -> None:
    """Create a budget over all pods."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    scene.rest.create(budgets(scene), body)


def budgets(scene: Scene) -> str:
    """Return the path of the scene's budgets."""
    return f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets"


def wait_counted(scene: Scene, *counts: int) -> Object:
    """Return the budget once it has counted: healthy pods now, as many as are to be, pods at all, to go."""
    wanted = dict(zip(READY, counts, strict=True))
    found: Object = scene.rest.wait(
        f"{budgets(scene)}/web",
        lambda found: {name: found.get("status", {}).get(name) for name in READY} == wanted,
    )
    return found


def evict(scene: Scene, name: str, **options: Any) -> int:
    """Ask for an eviction; return the answer's status."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    body |= {"deleteOptions": options} if options else {}
    try:
        scene.rest.request("POST", f"{scene.pods}/{name}/eviction", body, comes_again=False)
    except RestError as error:
        return error.status
    return 201


def lose_readiness(scene: Scene, name: str) -> None:
    """Let a pod run on without being ready."""
    conditions = scene.rest.get(f"{scene.pods}/{name}")["status"]["conditions"]
    changed = [{**one, "status": "False"} if one["type"] == "Ready" else one for one in conditions]
    scene.rest.patch(f"{scene.pods}/{name}/status", {"status": {"conditions": changed}})


@pytest.mark.parametrize(
    ("spec", "counts", "want"),
    [
        pytest.param({"minAvailable": 1}, (3, 1, 3, 2), [201, 201, 429], id="two may go"),
        pytest.param({"minAvailable": 0}, (3, 0, 3, 3), [201, 201, 201], id="all may go"),
        pytest.param(
            {"maxUnavailable": 2},
            (3, 0, 0, 0),
            [429, 429, 429],
            id="no owner says how many pods there should be",
        ),
        pytest.param({"minAvailable": "50%"}, (3, 0, 0, 0), [429, 429, 429], id="half of an unknown number"),
    ],
)
def test_as_many_pods_go_as_the_budget_allows_where(
    scene: Scene, spec: Object, counts: tuple[int, ...], want: list[int]
) -> None:
    create_budget(scene, **spec)
    found = wait_counted(scene, *counts)
    word = ("True", "SufficientPods") if counts[-1] else ("False", "InsufficientPods")
    said = condition(found, "DisruptionAllowed")
    assert (said["status"], said["reason"]) == word

    assert [evict(scene, name) for name in PODS] == want


def test_dry_runs_are_answered_each_as_if_it_were_the_only_one(scene: Scene) -> None:
    create_budget(scene, minAvailable=2)
    wait_counted(scene, 3, 2, 3, 1)

    assert [evict(scene, name, dryRun=["All"]) for name in PODS] == [201, 201, 201]

    wait_counted(scene, 3, 2, 3, 1)
    assert [evict(scene, name) for name in PODS] == [201, 429, 429]


@pytest.mark.parametrize(
    ("spec", "counts", "want"),
    [
        pytest.param({"minAvailable": 2}, (2, 2, 3, 0), [429, 201], id="it goes where enough others are"),
        pytest.param({"minAvailable": 3}, (2, 3, 3, 0), [429, 429], id="it stays where too few are"),
        pytest.param(
            {"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            (2, 3, 3, 0),
            [429, 201],
            id="it goes where the budget says so",
        ),
    ],
)
def test_of_a_pod_that_is_not_ready(
    scene: Scene, spec: Object, counts: tuple[int, ...], want: list[int]
) -> None:
    lose_readiness(scene, "c")
    create_budget(scene, **spec)
    wait_counted(scene, *counts)

    assert [evict(scene, name) for name in ("a", "c")] == want


def test_an_evicted_pod_says_why_it_ends(scene: Scene) -> None:
    path = f"{scene.pods}/a"
    scene.rest.patch(path, {"metadata": {"finalizers": ["example.com/witness"]}})

    assert evict(scene, "a", preconditions={"uid": "another"}) == 409
    assert evict(scene, "a") == 201

    found = scene.rest.get(path)
    assert found["metadata"]["deletionTimestamp"]
    target = condition(found, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


def test_a_pod_under_two_budgets_is_not_evicted(scene: Scene) -> None:
    create_budget(scene, minAvailable=0)
    wait_counted(scene, 3, 0, 3, 3)
    body = scene.rest.get(f"{budgets(scene)}/web")
    second = {"name": "second"}
    scene.rest.create(budgets(scene), {**body, "metadata": second, "status": {}})

    assert evict(scene, "a") == 500
