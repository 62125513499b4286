"""The gauges of queues, read from what the controller knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf, isnan
from typing import Any

import pytest

from admission.controller.cluster_state.workload_counts import Unadmitted
from admission.controller.gauges.collector import QueueCollector
from admission.controller.gauges.reader import (
    CohortGauges,
    GaugeReader,
    GaugeSettings,
    LocalQueueGauges,
    QueueGauges,
)
from admission.controller.metrics.labels import CustomLabel, MetricLabels
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.runtime.large_reads import LargeReads
from api.kube.informer import ChangeType
from api.objects.common import WireSelector
from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)

WAITS = Unadmitted("NoReservation", "PendingEvaluation")


def known_queue(*objects: Object, **spec: object) -> Known:
    """Return a controller that knows a ClusterQueue of 1.5 cores and its LocalQueue, and these."""
    return Known(
        namespace_object("default"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "1500m", **spec),
        local_queue_object("main", "default", "cq"),
        *objects,
    )


def queue_gauges(known: Known, *, with_quotas: bool = False) -> QueueGauges:
    """Return the snapshot of the only ClusterQueue."""
    reader = GaugeReader(known.cluster_state, MetricLabels(), settings=GaugeSettings(with_quotas=with_quotas))
    (found,) = (one for one in reader.snapshots(now=1e9) if isinstance(one, QueueGauges))
    return found


def local_gauges(known: Known, labels: MetricLabels | None = None) -> list[LocalQueueGauges]:
    """Return the snapshots of all LocalQueues."""
    reader = GaugeReader(known.cluster_state, labels or MetricLabels())
    return [one for one in reader.snapshots(now=0.0) if isinstance(one, LocalQueueGauges)]


def cohorts_of(reader: GaugeReader) -> list[CohortGauges]:
    """Return the snapshots of all Cohorts."""
    return [one for one in reader.snapshots(now=0.0) if isinstance(one, CohortGauges)]


def test_quota_and_what_is_reserved_of_it_are_shown_in_cores() -> None:
    gauges = queue_gauges(known_queue(), with_quotas=True)

    (quota,) = gauges.quotas
    assert (quota.flavor, quota.resource, quota.nominal, quota.reserved) == ("f", "cpu", 1.5, 0.0)
    assert quota.borrowing_limit == inf


def test_without_being_asked_for_there_is_no_series_for_each_quota() -> None:
    gauges = queue_gauges(known_queue())

    assert (gauges.quotas, gauges.weighted_share) == ((), None)


def test_waiting_workloads_are_counted_by_shape_by_what_they_ask_for_and_by_why_they_wait() -> None:
    known = known_queue(
        workload_object("one", "default", "main", created="2001-09-09T01:46:30Z"),
        workload_object("two", "default", "main", created="2001-09-09T01:46:35Z"),
    )

    gauges = queue_gauges(known)

    assert (gauges.pending_active, gauges.active_shapes, gauges.parked_shapes) == (2, 1, 0)
    assert gauges.requested == {"cpu": 2.0}
    assert gauges.head_age_seconds == 10.0
    assert gauges.unadmitted == {WAITS: 2}
    (local,) = local_gauges(known)
    assert (local.pending_active, local.pending_inadmissible, local.unadmitted) == (2, 0, {WAITS: 2})


@pytest.mark.parametrize(
    ("stop", "want"),
    [
        pytest.param("None", (2, 0), id="of a queue that admits Workloads"),
        pytest.param("Hold", (0, 2), id="of one on hold"),
    ],
)
def test_what_waits_is_active_or_inadmissible(stop: str, want: tuple[int, int]) -> None:
    """Kueue counts all that waits in a ClusterQueue that is not active as inadmissible."""
    known = known_queue(
        workload_object("one", "default", "main"),
        workload_object("two", "default", "main"),
        stopPolicy=stop,
    )

    gauges, (local,) = queue_gauges(known), local_gauges(known)

    assert (gauges.pending_active, gauges.pending_inadmissible) == want
    assert (local.pending_active, local.pending_inadmissible) == want


def admitted_object(name: str, cpu: str, **metadata: Any) -> Object:
    """Return a Workload that holds this much of the ClusterQueue's quota."""
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": ""}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "conditions": conditions,
    }
    return {**workload_object(name, "default", "main", **metadata), "status": status}


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        # Half a core of 3.5 is borrowed.
        pytest.param("1", 500 / 3.5, id="with its fraction"),
        pytest.param("0", None, id="NaN for a queue of weight 0 that borrows"),
    ],
)
def test_the_weighted_share_is(weight: str, want: float | None) -> None:
    """Kueue's gauges show the precise share; the statuses round it up."""
    known = known_queue(
        cluster_queue_object("lender", "2", cohortName="team"),
        admitted_object("one", "2"),
        cohortName="team",
        fairSharing={"weight": weight},
    )

    reader = GaugeReader(known.cluster_state, MetricLabels(), settings=GaugeSettings(with_shares=True))
    found = {
        one.name: one.weighted_share for one in reader.snapshots(now=0.0) if isinstance(one, QueueGauges)
    }

    share = found["cq"]
    assert share is not None
    assert (None if isnan(share) else share) == (want if want is None else pytest.approx(want))


def test_admitted_workloads_are_counted_by_the_custom_labels_of_workloads_and_of_their_queue() -> None:
    """Kueue, KEP 7066: the gauge of admitted Workloads alone has the labels of both kinds."""
    labels = MetricLabels(
        (
            CustomLabel(name="custom_team", kind="ClusterQueue", key="team"),
            CustomLabel(name="custom_kind", kind="Workload", key="kind"),
        )
    )
    known = Known(labels=labels)
    reader = GaugeReader(known.cluster_state, labels)
    for obj in (
        namespace_object("default"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "3"),
        local_queue_object("main", "default", "cq"),
    ):
        known.tell(obj)
    training, serving = ({"labels": {"kind": kind}} for kind in ("training", "serving"))
    one, two = admitted_object("one", "1", **training), admitted_object("two", "1", **training)

    def admitted() -> Mapping[tuple[str, ...], int]:
        (found,) = (one for one in reader.snapshots(now=0.0) if isinstance(one, QueueGauges))
        return dict(found.admitted)

    known.tell(one)
    known.tell(two)
    before = admitted()
    known.tell(admitted_object("two", "1", **serving), ChangeType.MODIFIED)
    changed = admitted()
    known.tell(one, ChangeType.DELETED)

    assert (before, changed, admitted()) == (
        {("training",): 2},
        {("training",): 1, ("serving",): 1},
        {("serving",): 1},
    )
    collector = QueueCollector(
        known.metrics,
        reader,
        known.clock,
        reads=LargeReads(known.clock),
        series=QueueSeries(labels),
        statistics=known.cluster_state.engine.tally,
    )
    asyncio.run(collector.refresh())
    (family,) = (one for one in collector.collect() if one.name == "kueue_admitted_active_workloads")
    assert [sample.labels for sample in family.samples] == [
        {
            "replica_role": "follower",
            "cluster_queue": "cq",
            "custom_kind": "serving",
            "custom_team": "",
        }
    ]


def test_a_finished_workload_is_counted_until_it_is_deleted() -> None:
    finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    done = {**workload_object("one", "default", "main"), "status": {"conditions": [finished]}}
    known = known_queue(done)

    before = queue_gauges(known).finished, local_gauges(known)[0].finished
    known.tell(done, ChangeType.DELETED)

    assert before == (1, 1)
    assert (queue_gauges(known).finished, local_gauges(known)[0].finished) == (0, 0)


def test_cohorts_show_what_is_below_them_and_their_place() -> None:
    known = known_queue(made("Cohort", "team", spec={"parentName": "org"}), cohortName="team")

    cohorts = cohorts_of(GaugeReader(known.cluster_state, MetricLabels()))

    assert [(one.name, one.parent, one.root) for one in cohorts] == [
        ("org", "", "org"),
        ("team", "org", "org"),
    ]
    assert [list(one.quota.values()) for one in cohorts] == [[1.5], [1.5]]
    gauges = queue_gauges(known)
    assert (gauges.cohort, gauges.root) == ("team", "org")


def test_what_a_cohort_reserves_is_all_that_its_queues_use_also_of_quota_that_they_do_not_lend() -> None:
    quota = {"name": "cpu", "nominalQuota": "10", "lendingLimit": "8"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    known = known_queue(admitted_object("w", "6"), cohortName="team", resourceGroups=[group])

    (cohort,) = cohorts_of(GaugeReader(known.cluster_state, MetricLabels()))

    assert list(cohort.reserved.values()) == [6.0]


def test_the_series_of_a_deleted_cohort_that_queues_still_name_begin_again_once_something_changes() -> None:
    team = made("Cohort", "team")
    known = known_queue(team, cohortName="team")
    reader = GaugeReader(known.cluster_state, MetricLabels())
    assert [one.name for one in cohorts_of(reader)] == ["team"]

    known.tell(team, ChangeType.DELETED)
    assert [cohorts_of(reader), cohorts_of(reader)] == [[], []]
    known.tell(admitted_object("w", "1"))

    assert [(one.name, one.admitted) for one in cohorts_of(reader)] == [("team", 1)]


@pytest.mark.parametrize(("team", "want"), [("vision", ["main"]), ("speech", [])])
def test_local_queues_that_the_selector_leaves_out_have_no_metrics(team: str, want: list[str]) -> None:
    labels = MetricLabels(selector=WireSelector(match_labels={"team": "vision"}))
    known = Known(namespace_object("default"), cluster_queue_object("cq"), labels=labels)
    known.tell(
        {**local_queue_object("main", "default", "cq")}
        | {"metadata": {"name": "main", "namespace": "default", "labels": {"team": team}}}
    )

    assert [one.name for one in local_gauges(known, labels)] == want
