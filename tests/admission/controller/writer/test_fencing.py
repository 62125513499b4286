"""Fencing off: a write that is sure to change the Workload, however often it was fenced before."""

from __future__ import annotations

import msgspec
import pytest

from admission.controller.writer.fencing import fence_write, is_fenced_off, refenced
from admission.decisions.decision import DecisionId
from api.workload import WorkloadKey

KEY = "berth.dev/fence"
DECISION = DecisionId(WorkloadKey("team", "w"), "uid-w", "7")


def workload(fence: str | None = None, *, uid: str = "uid-w", version: str = "7") -> bytes:
    annotations = None if fence is None else {KEY: fence}
    return msgspec.json.encode(
        {"metadata": {"uid": uid, "resourceVersion": version, "annotations": annotations}}
    )


@pytest.mark.parametrize(
    ("present", "want"),
    [
        pytest.param(None, "4", id="it was never seen"),
        pytest.param(workload(), "4", id="it was never fenced"),
        pytest.param(workload("3"), "4", id="an earlier leader fenced it"),
        pytest.param(workload("4"), "4.1", id="we fenced it once"),
        pytest.param(workload("4.9"), "4.10", id="we fenced it ten times"),
        pytest.param(workload("4.x"), "4.1", id="another program has written nonsense"),
        pytest.param(workload("4." + "9" * 5_000), "4.1", id="more digits than Python converts"),
    ],
)
def test_the_value_is_one_that_the_workload_does_not_carry(present: bytes | None, want: str) -> None:
    write = fence_write(DECISION, fence=4, raw=present)

    assert msgspec.json.decode(write.body) == {"metadata": {"annotations": {KEY: want}}}
    assert (write.kind, write.namespace, write.name) == ("Workload", "team", "w")


def test_a_fence_is_made_from_the_stored_object() -> None:
    write = fence_write(DECISION, fence=4, raw=None)

    again = refenced(write, DECISION, fence=4, raw=workload("4"))

    assert again is not None
    assert b'"4.1"' in again.body


def test_a_workload_that_has_moved_on_is_not_fenced_again() -> None:
    write = fence_write(DECISION, fence=4, raw=None)

    assert refenced(write, DECISION, fence=4, raw=workload("4", version="8")) is None


@pytest.mark.parametrize(
    ("present", "want"),
    [
        pytest.param(workload("4"), False, id="the write changed nothing"),
        pytest.param(workload("4", version="8"), True, id="it is at a later version"),
        pytest.param(workload("4", uid="new"), True, id="it is another of the name"),
    ],
)
def test_whether_a_stray_write_can_still_be_stored(present: bytes, want: bool) -> None:
    assert is_fenced_off(DECISION, present) is want
