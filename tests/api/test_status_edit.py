"""Status bodies are edits of the last seen object: nothing is lost, and nothing is written needlessly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.status_edit import StatusEdit, shortened

NOW = 1_800_000_000.0
NOW_TEXT = "2027-01-15T08:00:00Z"
EARLIER_TEXT = "2027-01-15T07:00:00Z"


def edit_of(status: dict[str, Any], *, generation: int = 3) -> StatusEdit:
    """Return an edit of a Workload with this status."""
    body = {"metadata": {"name": "w", "generation": generation, "resourceVersion": "7"}, "status": status}
    return StatusEdit(msgspec.json.encode(body), now=NOW)


def condition(**fields: object) -> dict[str, Any]:
    """Return a condition as it might be, an hour old."""
    return {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "for another",
        "observedGeneration": 3,
        "lastTransitionTime": EARLIER_TEXT,
        **fields,
    }


def result(edit: StatusEdit) -> dict[str, Any]:
    """Return the status that would be sent."""
    decoded: dict[str, Any] = msgspec.json.decode(edit.to_bytes())
    status: dict[str, Any] = decoded["status"]
    return status


@pytest.mark.parametrize(
    ("present", "written", "want_at", "want_changed"),
    [
        pytest.param(
            None, (True, "Preempted", "for another"), NOW_TEXT, True, id="a new condition is dated now"
        ),
        pytest.param(
            condition(),
            (True, "Preempted", "for another"),
            EARLIER_TEXT,
            False,
            id="a condition that is the same changes nothing",
        ),
        pytest.param(
            condition(),
            (True, "NodeFailures", "node lost"),
            EARLIER_TEXT,
            True,
            id="another reason keeps the time of the transition",
        ),
        pytest.param(
            condition(), (False, "QuotaReserved", "in"), NOW_TEXT, True, id="another status is a transition"
        ),
        pytest.param(
            condition(observedGeneration=2),
            (True, "Preempted", "for another"),
            EARLIER_TEXT,
            True,
            id="a newer generation is written",
        ),
    ],
)
def test_a_condition_is_dated_by_its_last_transition(
    present: dict[str, Any] | None, written: tuple[bool, str, str], want_at: str, want_changed: bool
) -> None:
    edit = edit_of({"conditions": [present] if present else []})
    status, reason, message = written

    edit.set_condition("Evicted", status, reason=reason, message=message)

    assert edit.is_changed is want_changed
    assert result(edit)["conditions"] == [
        condition(
            status="True" if status else "False", reason=reason, message=message, lastTransitionTime=want_at
        )
    ]


def test_a_true_condition_that_ends_keeps_its_message_for_the_reader() -> None:
    edit = edit_of({"conditions": [condition()]})

    edit.reset_condition("Evicted", reason="QuotaReserved")

    assert result(edit)["conditions"][0]["message"] == "Previously: for another"


def test_a_false_condition_is_not_reset() -> None:
    edit = edit_of({"conditions": [condition(status="False")]})

    edit.reset_condition("Evicted", reason="QuotaReserved")

    assert not edit.is_changed


def test_fields_of_a_newer_version_survive() -> None:
    newer = {"conditions": [condition(newMember=1)], "newField": {"a": [1, 2]}}
    edit = edit_of(newer)

    edit.set_condition("Evicted", False, reason="r", message="m")

    assert result(edit)["newField"] == {"a": [1, 2]}
    assert result(edit)["conditions"][0]["newMember"] == 1


def test_the_body_is_the_whole_object_without_managed_fields() -> None:
    body = {
        "metadata": {"name": "w", "resourceVersion": "7", "managedFields": [{}]},
        "spec": {"active": True},
    }

    sent = msgspec.json.decode(StatusEdit(msgspec.json.encode(body), now=NOW).to_bytes())

    assert sent == {
        "metadata": {"name": "w", "resourceVersion": "7"},
        "spec": {"active": True},
        "status": {},
    }


def test_a_message_is_cut_at_what_a_condition_holds_and_at_a_whole_character() -> None:
    cut = shortened("é" * 20_000)

    assert len(cut.encode()) <= 32768
    assert cut.endswith("é…")
    assert shortened("short") == "short"
