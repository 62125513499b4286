"""Writes name the version of the object that was seen, so that a stale view changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import ObjectVersion, Purpose, Verb, Write

SEEN = ObjectVersion(kind="Pod", namespace="team", name="p", uid="u", resource_version="7")
GUARD = {"uid": "u", "resourceVersion": "7"}


def decoded(write: Write) -> dict[str, Any]:
    """Return the body of a write."""
    body: dict[str, Any] = msgspec.json.decode(write.body)
    return body


def metadata_of(write: Write) -> object:
    """Return the metadata in a patch."""
    return decoded(write)["metadata"]


def preconditions(write: Write) -> object:
    """Return what a deletion or an eviction requires of the object."""
    body = decoded(write)
    return (body.get("deleteOptions") or body)["preconditions"]


@pytest.mark.parametrize(
    ("make", "want", "guard_of"),
    [
        pytest.param(
            lambda seen: seen.patch({"spec": {}}, Purpose.UNGATE_POD),
            (Verb.MERGE_PATCH, ""),
            metadata_of,
            id="a merge patch",
        ),
        pytest.param(
            lambda seen: seen.status_patch({"phase": "Failed"}, Purpose.FAIL_POD),
            (Verb.STRATEGIC_PATCH, "status"),
            metadata_of,
            id="a patch of the status",
        ),
        pytest.param(
            lambda seen: seen.deletion(Purpose.STOP_POD), (Verb.DELETE, ""), preconditions, id="a deletion"
        ),
        pytest.param(
            lambda seen: seen.eviction(Purpose.EVICT_POD), (Verb.EVICT, ""), preconditions, id="an eviction"
        ),
    ],
)
def test_a_write_is_guarded_by_what_was_seen(
    make: Callable[[ObjectVersion], Write],
    want: tuple[Verb, str],
    guard_of: Callable[[Write], object],
) -> None:
    write, in_any_version = make(SEEN), make(SEEN.in_any_version)

    assert (write.verb, write.subresource) == want
    assert (write.kind, write.namespace, write.name) == ("Pod", "team", "p")
    assert (write.uid, write.resource_version) == ("u", "7")
    assert guard_of(write) == GUARD
    assert guard_of(in_any_version) == {"uid": "u"}


@pytest.mark.parametrize(("given", "want"), [(None, None), (0, 0), (30, 30)])
def test_a_deletion_has_a_grace_period_only_if_one_is_given(given: int | None, want: int | None) -> None:
    write = SEEN.deletion(Purpose.GIVE_UP_POD, grace_seconds=given)

    assert decoded(write).get("gracePeriodSeconds") == want


def test_a_patch_keeps_its_own_metadata_beside_the_guard() -> None:
    write = SEEN.patch({"metadata": {"labels": {"a": "b"}}}, Purpose.UPDATE_WORKLOAD)

    assert metadata_of(write) == {"labels": {"a": "b"}, **GUARD}
