"""The lock files serve every Python and system that Berth runs on, not only those that they were made on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# The first of each, as a system ships them: Debian 12 has 3.11.2.
PYTHONS = ["3.11.0", "3.11.3", "3.12.0", "3.13.0", "3.14.0"]


def pinned(lock: str) -> set[str]:
    """Return the names that a lock file pins."""
    names = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / lock).read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name) for name in names}


def needed(requirement: Requirement, environment: Mapping[str, str], seen: set[str]) -> Iterator[str]:
    """Yield what a requirement asks for in an environment, with all that this asks for in turn."""
    for extra in ["", *sorted(requirement.extras)]:
        if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if f"{name}[{extra}]" in seen:
            continue
        seen.add(f"{name}[{extra}]")
        yield name
        try:
            asked = distribution(name).requires or []
        except PackageNotFoundError:  # of another Python or system: what it asks for cannot be known here
            continue
        for text in asked:
            inner = Requirement(text)
            if not inner.marker or inner.marker.evaluate({**environment, "extra": extra}):
                inner.marker = None
                yield from needed(inner, environment, seen)


def environment_of(python: str, system: str) -> dict[str, str]:
    """Return what markers are evaluated by on this Python and system."""
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": system,
        "platform_system": system.title(),
    }


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("lock", "extra"),
    [
        ("requirements.lock", ""),
        ("requirements-dev.lock", "dev"),
        ("requirements-mutation.lock", "mutation"),
        ("requirements-sbom.lock", "sbom"),
        ("requirements-openapi.lock", "openapi"),
    ],
    ids=["run", "dev", "mutation", "sbom", "openapi"],
)
def test_a_lock_pins_all_that_is_needed(lock: str, extra: str, python: str, system: str) -> None:
    wanted = set(needed(Requirement(f"berth-queue[{extra}]"), environment_of(python, system), set()))

    assert wanted - {"berth-queue"} <= pinned("requirements.lock") | pinned(lock)


def test_the_image_carries_nothing_that_berth_does_not_need() -> None:
    wanted: set[str] = {"async-timeout", "setuptools"}  # build-requirements.in says why
    for python in PYTHONS:
        wanted |= set(needed(Requirement("berth-queue"), environment_of(python, "linux"), set()))

    assert pinned("requirements.lock") - wanted == set()
