"""What the informers of the controller keep beside the cluster state."""

from __future__ import annotations

import msgspec
import pytest

from admission.controller.kinds import watched_kinds
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.queue_series import QueueSeries
from api.kube.report_budget import WriteLoad
from tests.admission.controller.known import Known

_METADATA = {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize("name", ["Workload", "Job"])
def test_of_objects_that_the_cluster_state_keeps_an_informer_keeps_the_version(name: str) -> None:
    state = Known().cluster_state
    board = StatusWriter(state.engine, WriteLoad(), with_share=False, is_busy=lambda _: False)
    (kind,) = (one for one in watched_kinds(state, board, QueueSeries()) if one.resource.kind == name)
    raw = msgspec.json.encode(
        {"metadata": {**_METADATA, "labels": {"l": "v"}}, "spec": {"priority": 1, "suspend": True}}
    )

    assert kind.keeps is not None
    kept = kind.keeps(msgspec.json.decode(raw, type=kind.wire))

    assert kept == msgspec.convert({"metadata": _METADATA}, kind.wire)
    assert kind.keeps_raw
