"""The digest by which `bench.decide` compares the decisions of two versions of the engine."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import msgspec

from admission.decisions.decision import Wait
from api.reasons import PendingReason
from api.workload import WorkloadKey
from bench.decide import BASELINE, Digest, Run

_WAIT = Wait(
    key=WorkloadKey("default", "one"),
    uid="u1",
    reason=PendingReason.WAITING_FOR_QUOTA,
    message="no quota",
    requests={"main": MappingProxyType({"cpu": 1, "memory": 2})},
)


def _digest(*waits: Wait, now: float = 1.0) -> str:
    digest = Digest()
    digest.add(waits, now)
    return str(digest)


def test_equal_decisions_have_one_digest_in_whatever_order_a_mapping_has_its_keys() -> None:
    turned = msgspec.structs.replace(_WAIT, requests={"main": {"memory": 2, "cpu": 1}})

    assert _digest(_WAIT) == _digest(turned)


def test_another_message_order_or_time_is_another_digest() -> None:
    other = msgspec.structs.replace(_WAIT, message="no nodes")

    digests = {_digest(_WAIT, other), _digest(other, _WAIT), _digest(_WAIT), _digest(_WAIT, now=2.0)}
    assert len(digests) == 4


def test_a_wait_changes_only_the_digest_with_waits() -> None:
    acts, _, waits = _digest(_WAIT).partition(", ")
    none_acts, _, none_waits = _digest().partition(", ")

    assert acts == none_acts
    assert waits != none_waits


def test_two_runs_of_one_shape_decide_the_same() -> None:
    classes = tuple(replace(one, count=2) for one in BASELINE.classes)
    runs = [Run(replace(BASELINE, cohorts=1, queues_per_cohort=3, classes=classes)) for _ in range(2)]
    for run in runs:
        run.go()

    assert runs[0].admits >= 18
    assert str(runs[0].digest) == str(runs[1].digest)
