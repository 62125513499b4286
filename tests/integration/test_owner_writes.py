"""The kinds of the table of owners over the wire, their own controllers played: watch, decision, writes.

The definitions come after the controller has started, and go again: it goes on either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from api.jobs.owners.paths import replaced, value_at
from api.jobs.owners.table import SOURCES
from api.jobs.pod_template import merge_patch
from tests.controlplane import Rest
from tests.controlplane.definitions import CRDS, install_crds
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import QUEUE_NAME, Object, condition, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.owners import EXTERNAL, EXTERNAL_SAMPLE, SAMPLES, OwnerSample, definition

pytestmark = pytest.mark.xdist_group("owner-writes")

CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {", ".join(one.row.framework for one in SAMPLES)}]
"""
ALL = (*SAMPLES, EXTERNAL_SAMPLE)
each_kind = pytest.mark.parametrize("sample", [pytest.param(one, id=one.row.kind) for one in ALL])
with_own_templates = pytest.mark.parametrize(
    "sample", [pytest.param(one, id=one.row.kind) for one in ALL if one.row.templates is None]
)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues these kinds."""
    return Options(config=CONFIG, settings=EXTERNAL)


@contextmanager
def kinds_defined(rest: Rest, samples: Sequence[OwnerSample] = ALL) -> Iterator[None]:
    """Let the cluster have the kinds of these samples, and what they refer to, until the block ends."""
    definitions = [definition(one.row) for one in samples]
    definitions += [definition(source) for source in SOURCES]
    install_crds(rest, definitions)
    for one in samples:
        if one.runtime:
            (source,) = (source for source in one.row.sources if source.kind == one.runtime["kind"])
            rest.create(f"/apis/{source.group}/{source.version}/{source.plural}", one.runtime)
    yield
    for made in definitions:
        rest.delete(f"{CRDS}/{made['metadata']['name']}")


@pytest.fixture(scope="module")
def defined(embedded_cluster: Cluster, embedded_controller: Replica) -> Iterator[Cluster]:
    """Give a cluster whose controller was there before the kinds."""
    del embedded_controller
    with kinds_defined(embedded_cluster.rest):
        yield embedded_cluster


@pytest.fixture
def scene(defined: Cluster) -> Scene:
    """Give a scene with a queue of 100 CPUs."""
    scene = defined.new_scene()
    scene.create_queue("lq", cpus=100)
    return scene


def path_of(scene: Scene, sample: OwnerSample, name: str = "") -> str:
    """Return the path of an object of the kind, or of all in the namespace."""
    row = sample.row
    collection = f"/apis/{row.group}/{row.version}/namespaces/{scene.namespace}/{row.plural}"
    return f"{collection}/{name}" if name else collection


def create(scene: Scene, sample: OwnerSample, queue: str = "lq") -> None:
    """Create the sample in a queue."""
    body = sample.object()
    body["metadata"] = {"name": "j", "labels": {QUEUE_NAME: queue}}
    scene.rest.create(path_of(scene, sample), body)


def report(scene: Scene, sample: OwnerSample, status: Object) -> None:
    """Write a status as the kind's own controller would."""
    patch = merge_patch(shown(scene, sample).get("status") or {}, status)
    scene.rest.patch(f"{path_of(scene, sample, 'j')}/status", {"status": patch})


def shown(scene: Scene, sample: OwnerSample) -> Object:
    """Return the object as it is."""
    return dict(scene.rest.get(path_of(scene, sample, "j")))


def is_suspended(scene: Scene, sample: OwnerSample) -> bool:
    """Return whether the object is suspended."""
    return bool(value_at(shown(scene, sample), sample.row.suspend))


@each_kind
def test_one_is_started_evicted_restored_and_finished(scene: Scene, sample: OwnerSample) -> None:
    create(scene, sample)
    scene.wait_true("j", "Admitted")
    wait_for(lambda: not is_suspended(scene, sample), "its start")
    report(scene, sample, sample.ready)
    scene.wait_true("j", "PodsReady")

    scene.set_active("j", active=False)
    wait_for(lambda: is_suspended(scene, sample), "its stop")
    report(scene, sample, sample.stopped)
    scene.wait_workload("j", lambda found: "admission" not in found.get("status", {}), "quota released")
    assert scene.rest.get(path_of(scene, sample, "j"))["spec"] == sample.object()["spec"]

    scene.set_active("j", active=True)
    wait_for(lambda: not is_suspended(scene, sample), "its second start")
    if sample.succeeded is None:
        return
    report(scene, sample, sample.succeeded)
    finished = condition(scene.wait_true("j", "Finished"), "Finished")
    assert (finished["reason"], finished["message"]) == ("Succeeded", sample.messages[0])


@each_kind
def test_one_that_another_program_resumes_again_and_again_waits_and_others_go_on(
    scene: Scene, sample: OwnerSample
) -> None:
    """As GitOps does that has `suspend: false` in its repository."""
    scene.create_queue("full", cpus=0)
    create(scene, sample, queue="full")
    scene.wait_pending("j", "ExceedsMaxQuota")

    for _ in range(3):
        scene.rest.patch(path_of(scene, sample, "j"), dict(replaced({}, sample.row.suspend, value=False)))
        wait_for(lambda: is_suspended(scene, sample), "it suspended again")

    scene.create_job("other", queue="lq")
    scene.wait_admitted("other")
    scene.wait_pending("j", "ExceedsMaxQuota")
    assert len(scene.workloads_of("j")) == 1


@with_own_templates
def test_one_whose_template_changes_under_its_admission_is_stopped_and_queued_again(
    scene: Scene, sample: OwnerSample
) -> None:
    create(scene, sample)
    scene.wait_true("j", "Admitted")
    wait_for(lambda: not is_suspended(scene, sample), "its start")
    report(scene, sample, sample.ready)
    before = shown(scene, sample)

    scene.rest.patch(path_of(scene, sample, "j"), merge_patch(before, sample.with_cpu(before, "7")))

    wait_for(lambda: is_suspended(scene, sample), "its stop")
    report(scene, sample, sample.stopped)
    scene.wait_workload(
        "j", lambda found: is_true(found, "Admitted") and _first_cpu(found) == "7", "admitted as it is now"
    )
    wait_for(lambda: not is_suspended(scene, sample), "its second start")


@each_kind
def test_one_whose_controller_is_down_keeps_its_quota_until_that_says_that_it_has_stopped(
    scene: Scene, sample: OwnerSample
) -> None:
    create(scene, sample)
    scene.wait_true("j", "Admitted")
    wait_for(lambda: not is_suspended(scene, sample), "its start")
    report(scene, sample, sample.running)
    scene.create_job("next", queue="lq", cpus=100)
    scene.wait_pending("next")

    scene.set_active("j", active=False)

    wait_for(lambda: is_suspended(scene, sample), "its stop")
    written = [shown(scene, sample), scene.wait_true("j", "Evicted")]
    scene.create_queue("free")
    scene.create_job("other", queue="free")
    scene.wait_admitted("other")
    assert [shown(scene, sample), scene.workload_of("j")] == written
    scene.wait_pending("next")

    report(scene, sample, sample.stopped)
    scene.wait_admitted("next")


def _first_cpu(workload: Object) -> str:
    container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    return str(container["resources"]["requests"]["cpu"])
