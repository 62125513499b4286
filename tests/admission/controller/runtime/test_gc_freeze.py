"""A burst of objects that stay alive causes no collection that looks at many of them at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long

# A collection takes 0.1 to 0.2 microseconds per object, and no step of the event loop may take 50 ms.
_MOST_AT_ONCE = 200_000


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_a_burst_is_collected_in_parts() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in generations))

    keep_collector_off_what_lives_long()
    gc.callbacks.append(note)
    try:
        burst = [[number] for number in range(1_200_000)]
    finally:
        gc.callbacks.remove(note)

    assert len(burst) == 1_200_000
    assert 0 < max(looked_at) <= _MOST_AT_ONCE
