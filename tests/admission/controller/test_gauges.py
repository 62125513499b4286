"""The gauges of queues, read from what the controller knows."""

from __future__ import annotations

from math import inf

from admission.controller.handlers import queue_gauges
from tests.admission.controller.known import Known, cluster_queue_object, made


def test_quota_and_what_is_reserved_of_it_are_shown_in_cores() -> None:
    known = Known(made("ResourceFlavor", "f"), cluster_queue_object("cq", "1500m"))

    (gauges,) = queue_gauges(known.knowledge, with_quotas=True, with_shares=False)

    (quota,) = gauges.quotas
    assert (quota.flavor, quota.resource, quota.nominal, quota.reserved) == ("f", "cpu", 1.5, 0.0)
    assert quota.borrowing_limit == inf


def test_without_being_asked_for_there_is_no_series_for_each_quota() -> None:
    known = Known(made("ResourceFlavor", "f"), cluster_queue_object("cq", "1500m"))

    (gauges,) = queue_gauges(known.knowledge, with_quotas=False, with_shares=False)

    assert (gauges.quotas, gauges.weighted_share) == ((), None)
