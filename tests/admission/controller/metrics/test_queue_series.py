"""Series of a queue end with it: a queue that is created again under the same name counts from zero."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Counter
from api.objects.common import Meta

OBJECTS = [
    pytest.param(CLUSTER_QUEUE, "", {"cluster_queue": "a"}, id="a ClusterQueue"),
    pytest.param(CLUSTER_QUEUE, "", {"preempting_cluster_queue": "a"}, id="a ClusterQueue that preempted"),
    pytest.param(LOCAL_QUEUE, "team", {"name": "a", "namespace": "team"}, id="a LocalQueue"),
    pytest.param(COHORT, "", {"cohort": "a"}, id="a Cohort"),
]


@pytest.mark.parametrize(("kind", "namespace", "labels"), OBJECTS)
@pytest.mark.parametrize(
    "is_deletion_seen", [True, False], ids=["by its deletion", "by the uid of its successor"]
)
def test_a_queue_that_is_created_again_counts_from_zero(
    kind: str, namespace: str, labels: dict[str, str], is_deletion_seen: bool
) -> None:
    registry = CollectorRegistry()
    counter = Counter("admitted", "", ("reason", *labels), registry=registry)
    series = QueueSeries()
    series.keep(tuple(labels), counter)
    old = Meta(name="a", namespace=namespace, uid="1")
    series.see(kind, old)
    counter.labels(reason="x", **labels).inc()

    if is_deletion_seen:
        series.forget(kind, old)
    series.see(kind, Meta(name="a", namespace=namespace, uid="2"))

    assert registry.get_sample_value("admitted_total", {"reason": "x", **labels}) is None


def test_a_changed_queue_goes_on_counting() -> None:
    registry = CollectorRegistry()
    counter = Counter("admitted", "", ("cluster_queue",), registry=registry)
    series = QueueSeries()
    series.keep(("cluster_queue",), counter)
    series.see(CLUSTER_QUEUE, Meta(name="a", uid="1"))
    series.see(CLUSTER_QUEUE, Meta(name="b", uid="2"))
    for queue in ("a", "b"):
        counter.labels(cluster_queue=queue).inc()

    series.see(CLUSTER_QUEUE, Meta(name="a", uid="1", generation=2))
    series.forget(CLUSTER_QUEUE, Meta(name="b", uid="2"))

    assert registry.get_sample_value("admitted_total", {"cluster_queue": "a"}) == 1.0
