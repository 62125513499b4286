"""Kueue's two sets of words for why a Workload has no quota; source: UnadmittedWorkloadReasonWithFallback."""

from __future__ import annotations

import pytest

from api.reason_words import ReasonWords, words_for
from api.reasons import PendingReason

OLDER, FINE = ReasonWords(is_fine=False), ReasonWords()

CASES = [
    pytest.param(PendingReason.WAITING_FOR_QUOTA, "Pending", "Pending", id="quota is used"),
    pytest.param(PendingReason.NO_MATCHING_FLAVOR, "Pending", "Pending", id="no flavor matches"),
    pytest.param(PendingReason.WAITING_FOR_PODS_READY, "Waiting", "Waiting", id="others are not ready"),
    pytest.param(PendingReason.MISCONFIGURED, "Pending", "Inadmissible", id="a cycle or the queue refuses"),
    pytest.param(PendingReason.SUSPENDED, "Pending", "Inadmissible", id="the queue is not active"),
    pytest.param(PendingReason.ADMISSION_GATED, "Pending", "AdmissionGated", id="a gate"),
]


@pytest.mark.parametrize(("reason", "of_cycle", "of_queue"), CASES)
def test_the_older_word_depends_on_whether_a_cycle_could_try_the_workload(
    reason: PendingReason, of_cycle: str, of_queue: str
) -> None:
    assert (OLDER.of_cycle(reason), OLDER.of_queue(reason)) == (of_cycle, of_queue)


@pytest.mark.parametrize("reason", PendingReason)
def test_the_fine_word_is_the_reason_itself(reason: PendingReason) -> None:
    assert {FINE.of_cycle(reason), FINE.of_queue(reason)} == {reason.value}
    assert {reason.value, OLDER.of_cycle(reason), OLDER.of_queue(reason)} == words_for(reason)
