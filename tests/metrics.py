"""Which metrics a controller serves, without running one."""

from __future__ import annotations

import re
from functools import cache

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.gauges.collector import QueueCollector
from admission.controller.gauges.reader import GaugeReader
from admission.controller.metrics.measuring import measure
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.large_reads import LargeReads
from admission.engine.engine import Engine
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.events import EventRecorder
from api.kube.kubeconfig import Endpoint
from api.kube.report_budget import WriteLoad


@cache
def served_names() -> frozenset[str]:
    """Return the names of all metrics, as their HELP lines give them."""
    metrics, clock = Metrics(version="1"), SystemClock()
    nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
    events = EventReporter(EventRecorder(KubeClient(nowhere), WriteLoad(), instance="a test"))
    engine, series = Engine(), QueueSeries()
    cluster_state = ClusterState(engine, clock, ClusterStateSettings())
    measure(cluster_state, metrics, events, series)
    reader, reads = GaugeReader(cluster_state, series.labels), LargeReads(clock)
    QueueCollector(metrics, reader, clock, reads=reads, series=series, statistics=engine.tally)
    DomainCollector(metrics, engine.nodes.domain_usages, reads)
    return frozenset(re.findall(r"^# HELP (\w+)", metrics.render().decode(), flags=re.MULTILINE))
