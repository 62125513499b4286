"""What a Workload's annotations say of its checkpoints, and what of it is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from tests.builders import make_workload

SAVE, RESTART, INTERVAL, MEASURED = (
    "berth.dev/checkpoint-save-seconds",
    "berth.dev/checkpoint-restart-seconds",
    "berth.dev/checkpoint-interval-seconds",
    "berth.dev/checkpoint-measured",
)


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, CheckpointFacts(), id="nothing where it says nothing"),
        pytest.param(
            {"berth.dev/workload-type": "Training"},
            CheckpointFacts(workload_type="training"),
            id="its type, whatever the case",
        ),
        pytest.param(
            {"berth.dev/workload-type": "gaming"}, CheckpointFacts(), id="no type that there is not"
        ),
        pytest.param({SAVE: "20"}, CheckpointFacts(save_seconds=20), id="how long a save takes"),
        pytest.param({SAVE: "-1"}, CheckpointFacts(), id="no length below zero"),
        pytest.param({SAVE: "86401"}, CheckpointFacts(), id="no length above a day"),
        pytest.param({INTERVAL: "0"}, CheckpointFacts(), id="no interval of nothing"),
        pytest.param(
            {SAVE: "20", MEASURED: '{"save":[5,9,7]}'},
            CheckpointFacts(save_seconds=7),
            id="the middle of three saves that were measured",
        ),
        pytest.param(
            {SAVE: "20", MEASURED: '{"save":[5,9]}'},
            CheckpointFacts(save_seconds=20),
            id="what is declared while fewer were measured",
        ),
        pytest.param(
            {RESTART: "20", MEASURED: '{"restart":[5,-9,7]}'},
            CheckpointFacts(restart_seconds=20),
            id="what is declared where the measured cannot be believed",
        ),
    ],
)
def test_checkpoint_facts_of_a_workload(annotations: dict[str, str], want: CheckpointFacts) -> None:
    workload = replace(make_workload(), annotations=annotations)

    assert checkpoint_facts(workload) == want
