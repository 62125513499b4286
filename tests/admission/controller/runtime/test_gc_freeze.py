"""Neither the first lists nor a burst of objects causes a collection that looks at many of them at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long, stop_collector

# A collection takes 0.1 to 0.2 microseconds per object, and no step of the event loop may take 50 ms.
_MOST_AT_ONCE = 200_000


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


@contextmanager
def collections() -> Iterator[list[int]]:
    """Yield a list to which each collection adds the number of objects that it looks at."""
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in generations))

    gc.callbacks.append(note)
    try:
        yield looked_at
    finally:
        gc.callbacks.remove(note)


def test_what_the_first_lists_bring_is_never_looked_at() -> None:
    stop_collector()

    with collections() as looked_at:
        cluster = [[number] for number in range(300_000)]
        keep_collector_off_what_lives_long()
        gc.collect()

    assert len(cluster) == 300_000
    assert len(looked_at) == 1, "only the collection of the test itself"
    assert looked_at[0] < 1_000


def test_what_was_garbage_before_the_first_lists_is_freed() -> None:
    class Node:
        pass

    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    freed = weakref.ref(node)
    del node

    stop_collector()

    assert freed() is None


def test_a_burst_is_collected_in_parts() -> None:
    stop_collector()
    keep_collector_off_what_lives_long()

    with collections() as looked_at:
        burst = [[number] for number in range(1_200_000)]

    assert len(burst) == 1_200_000
    assert 0 < max(looked_at) <= _MOST_AT_ONCE
