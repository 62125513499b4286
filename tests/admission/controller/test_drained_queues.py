"""What the log of decisions shows of Workloads that a stopped queue evicts."""

from __future__ import annotations

import asyncio

from tests.admission.controller.cluster import Object
from tests.admission.controller.stage import Stage
from tests.admission.controller.virtualtime import end


def drain(queue: Object) -> None:
    """Stop the queue and evict its Workloads."""
    queue["spec"]["stopPolicy"] = "HoldAndDrain"


def test_an_eviction_by_a_stopped_queue_is_in_the_log_of_decisions() -> None:
    stage = Stage()
    stage.lead()
    stage.submit("w")
    stage.wait(5)

    stage.cluster.edit(("ClusterQueue", "", "a"), drain)
    stage.wait(5)

    logged = asyncio.run(stage.store.decisions(limit=1))
    end(stage.loop)
    assert [(one.what, one.reason, one.key.name) for one in logged] == [("Evict", "ClusterQueueStopped", "w")]
