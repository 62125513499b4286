"""What becomes of a head before and while it is nominated: why it may not be admitted whatever the quota."""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.decision import Wait
from api.objects.common import WireSelector
from api.queueing import Namespace
from api.workload import CheckState
from tests.builders import NAMESPACE, World, admits, make_cluster_queue, make_workload

AI = WireSelector(match_labels={"team": "ai"})
MISMATCH = (
    "workload namespace doesn't match ClusterQueue selector: "
    "ClusterQueue queue does not select namespace team: "
    "its spec.namespaceSelector does not match the namespace's labels"
)


def checks(**states: str) -> tuple[CheckState, ...]:
    return tuple(CheckState(name=name, state=state) for name, state in states.items())


@pytest.mark.parametrize(
    ("labels", "selector", "fields", "want"),
    [
        pytest.param({"team": "ai"}, AI, {}, None, id="is admitted where the queue selects its namespace"),
        pytest.param(
            {"team": "web"}, AI, {}, ("Misconfigured", MISMATCH), id="waits where it selects others"
        ),
        pytest.param(
            None, AI, {}, ("Misconfigured", MISMATCH), id="waits where nothing is known of its namespace"
        ),
        pytest.param(None, WireSelector(), {}, None, id="is admitted where the queue selects all"),
        pytest.param(
            None,
            WireSelector(),
            {"checks": checks(quick="Ready", budget="Retry", network="Rejected", later="Pending")},
            ("PendingEvaluation", "The workload has failed admission checks: budget, network"),
            id="waits for the checks that it has failed",
        ),
        pytest.param(
            {"team": "web"},
            AI,
            {"checks": checks(budget="Retry")},
            ("PendingEvaluation", "The workload has failed admission checks: budget"),
            id="waits for its checks first",
        ),
        pytest.param(
            None,
            WireSelector(),
            {"checks": checks(budget="Ready", later="Pending")},
            None,
            id="is admitted where its checks pass or are yet to be made",
        ),
    ],
)
def test_a_head(
    labels: dict[str, str] | None,
    selector: WireSelector,
    fields: dict[str, Any],
    want: tuple[str, str] | None,
) -> None:
    world = World()
    if labels is not None:
        world.put(Namespace(name=NAMESPACE, labels=labels))
    world.put(make_cluster_queue(quota=4, namespace_selector=selector), make_workload(**fields))

    decisions = world.settle()

    assert admits(decisions) == ([] if want else ["w"])
    said = [(one.reason, one.message) for one in decisions if isinstance(one, Wait)]
    assert said == ([want] if want else [])
