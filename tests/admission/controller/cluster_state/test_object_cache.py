"""The mirror: the newer of what arrives twice, and nothing that comes back from the dead."""

from __future__ import annotations

import pytest

from admission.controller.cluster_state.object_cache import ObjectCache
from api.objects.common import Meta, OwnerReference


def meta(uid: str = "first", version: str = "5", *, owner: str = "") -> Meta:
    """Return metadata of the object `w`."""
    owners = (OwnerReference(api_version="v1", kind="Job", name="j", uid=owner, controller=True),)
    return Meta(
        name="w",
        namespace="team",
        uid=uid,
        resource_version=version,
        owner_references=owners if owner else None,
    )


def knowing(*known: Meta) -> ObjectCache[str]:
    object_cache: ObjectCache[str] = ObjectCache()
    for one in known:
        object_cache.see(one, one.uid, b"")
    return object_cache


@pytest.mark.parametrize(
    ("arriving", "want"),
    [
        pytest.param(meta(version="6"), True, id="a later version is news"),
        pytest.param(meta(version="5"), False, id="the same version is none"),
        pytest.param(meta(version="4"), False, id="an earlier version is none"),
        pytest.param(meta(version="10"), True, id="versions are numbers, not texts"),
        pytest.param(meta("second", "6"), True, id="another of the name, made later, is news"),
        pytest.param(meta("second", "4"), False, id="another of the name, seen late, is none"),
        pytest.param(meta("second", ""), False, id="a version that is none is the oldest"),
    ],
)
def test_what_is_news(arriving: Meta, want: bool) -> None:
    assert knowing(meta()).is_newer(arriving) is want


def test_a_deleted_object_does_not_come_back() -> None:
    object_cache = knowing(meta())

    assert object_cache.forget(meta())

    assert object_cache.get(("team", "w")) is None
    assert object_cache.has_gone("first")
    assert not object_cache.is_newer(meta(version="9"))


def test_one_whose_name_was_taken_does_not_come_back() -> None:
    object_cache = knowing(meta(), meta("second", "6"))

    assert object_cache.has_gone("first")
    assert not object_cache.is_newer(meta(version="9"))


def test_the_end_of_the_old_one_leaves_the_new_one_alone() -> None:
    object_cache = knowing(meta(), meta("second", "6"))

    assert not object_cache.forget(meta(version="7"))

    seen = object_cache.by_uid("second")
    assert seen is not None
    assert seen.value == "second"


def test_an_object_is_found_by_its_owner_until_it_has_another() -> None:
    object_cache = knowing(meta(owner="job-1"), meta(version="6", owner="job-2"))

    assert object_cache.owned_by("job-1") == ()
    assert [seen.value for seen in object_cache.owned_by("job-2")] == ["first"]
