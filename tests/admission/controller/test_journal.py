"""The journal: what is counted and logged of decisions."""

from __future__ import annotations

from dataclasses import replace

from admission.controller.journal import Journal
from admission.controller.metrics import Metrics
from admission.decision import Evict
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.events import EventRecorder
from api.kube.kubeconfig import Endpoint
from api.reasons import EvictionReason, PreemptionReason
from api.workload import WorkloadKey

EVICTION = Evict(
    key=WorkloadKey("team", "victim"),
    uid="victim",
    resource_version="1",
    reason=EvictionReason.PREEMPTED,
    message="for another",
    preemption_reason=PreemptionReason.IN_COHORT_RECLAMATION,
    preemptor=WorkloadKey("team", "urgent"),
    preemptor_uid="urgent",
    preempting_cluster_queue="owner",
)


def test_a_workload_that_gives_way_to_the_same_one_twice_is_counted() -> None:
    metrics = Metrics(version="test")
    nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
    journal = Journal(EventRecorder(KubeClient(nowhere), instance="a test"), metrics)

    for eviction in (EVICTION, replace(EVICTION, preemptor_uid="other"), EVICTION):
        journal.note_cycle((eviction,), 0.0)

    line = 'berth_repeated_preemptions_total{preempting_cluster_queue="owner",replica_role="follower"} 1.0'
    assert line in metrics.render().decode().splitlines()
