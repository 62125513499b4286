"""The real parts that tests run on: which of them this machine has, and what happens without them.

A test whose part is missing is skipped, with the reason. BERTH_REQUIRE, a comma list of part names or `all`,
turns that skip into a failure; `all` also forbids every skip that is not marked optional.
`python -m tests.parts` prints one line per part. It exits with 1 when a required part is missing, and with 2
when BERTH_REQUIRE names a part that does not exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pytest

from tests.browser import BrowserMissing, find_browser
from tests.controlplane.binaries import CONTROLLERS, AssetsMissing, find_assets
from tests.controlplane.helm import find_helm
from tests.controlplane.owner_controllers import CONTROLLERS as OWNER_CONTROLLERS
from tests.controlplane.owner_controllers import check_built
from tests.redisserver import RedisMissing, find_redis

# A skip whose reason begins so is allowed even when everything is required.
OPTIONAL = "optional: "

_BUILD = "`make controlplane` builds it once, in about 9 minutes"


class PartMissing(Exception):
    """A part cannot be had on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something real that tests need. `find` returns where it is, in a few words, or raises PartMissing."""

    name: str
    find: Callable[[], str]
    skipped: str
    remedy: str


def _find_controlplane() -> str:
    try:
        assets = find_assets()
    except AssetsMissing as error:
        raise PartMissing(str(error)) from error
    return f"{assets.version} in {assets.folder}"


def _find_controllers() -> str:
    where = _find_controlplane()
    for name in CONTROLLERS:
        if not find_assets().has(name):
            raise PartMissing(f"no {name} in {find_assets().folder}")
    return where


def _find_redis() -> str:
    try:
        path, version = find_redis()
    except RedisMissing as error:
        raise PartMissing(str(error)) from error
    return f"{version} at {path}"


def _find_promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        raise PartMissing("no promtool on PATH")
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    # Older ones print their version on stderr.
    return f"{(answer.stdout or answer.stderr).split(',')[1].split()[1]} at {path}"


def _find_chromium() -> str:
    try:
        return find_browser()
    except BrowserMissing as error:
        raise PartMissing(str(error)) from error


def _find_owners() -> str:
    try:
        for source in OWNER_CONTROLLERS.values():
            check_built(source)
    except AssetsMissing as error:
        raise PartMissing(str(error)) from error
    return f"{', '.join(OWNER_CONTROLLERS)} in {source.folder.parent}"


def _find_helm() -> str:
    try:
        return str(find_helm())
    except AssetsMissing as error:
        raise PartMissing(str(error)) from error


def find_kubectl() -> str:
    """Return the path of kubectl: the one built with the control plane, else PATH's. Raises PartMissing."""
    try:
        return str(find_assets().program("kubectl"))
    except AssetsMissing:
        path = shutil.which("kubectl")
    if path is None:
        raise PartMissing("no kubectl on PATH, and none built")
    return path


PARTS = {
    part.name: part
    for part in (
        Part(
            name="controlplane",
            find=_find_controlplane,
            skipped="tests on the real kube-apiserver",
            remedy=_BUILD,
        ),
        Part(
            name="controllers",
            find=_find_controllers,
            skipped="tests with the real kube-scheduler and Job controller",
            remedy=_BUILD,
        ),
        Part(
            name="redis",
            find=_find_redis,
            skipped="tests on a real Redis",
            remedy="install redis-server (apt-get install redis-server)",
        ),
        Part(
            name="kubectl",
            find=find_kubectl,
            skipped="tests that drive kubectl",
            remedy=_BUILD,
        ),
        Part(
            name="promtool",
            find=_find_promtool,
            skipped="tests of alerts and metrics by Prometheus' own tool",
            remedy="install prometheus (apt-get install prometheus)",
        ),
        Part(
            name="chromium",
            find=_find_chromium,
            skipped="tests of the page in a browser",
            remedy="install chromium (apt-get install chromium)",
        ),
        Part(
            name="owners",
            find=_find_owners,
            skipped="tests with the real controllers of JobSet and other kinds",
            remedy="`make owners` builds them once, in about 10 minutes",
        ),
        Part(
            name="helm",
            find=_find_helm,
            skipped="tests of the chart",
            remedy="`make helm` builds it once, in about 3 minutes",
        ),
    )
}


def required() -> frozenset[str]:
    """Return the names of the parts that BERTH_REQUIRE asks for. Raises ValueError for an unknown name."""
    names = frozenset(filter(None, os.environ.get("BERTH_REQUIRE", "").replace(" ", "").split(",")))
    if "all" in names:
        return frozenset(PARTS)
    if unknown := names - PARTS.keys():
        raise ValueError(
            f"BERTH_REQUIRE names {', '.join(sorted(unknown))}; there are all, {', '.join(PARTS)}"
        )
    return names


def are_all_required() -> bool:
    """Return whether this run must not skip anything but what is marked optional."""
    return required() == frozenset(PARTS)


def need(name: str) -> None:
    """Go on if the part is there, else skip the present test, or fail it where the part is required."""
    missing = _missing(PARTS[name])
    if missing is None:
        return
    if name in required():
        pytest.fail(f"required by BERTH_REQUIRE, but {name}: {missing}", pytrace=False)
    pytest.skip(f"{name}: {missing}")


def _missing(part: Part) -> str | None:
    try:
        part.find()
    except PartMissing as missing:
        return f"{missing}; {part.remedy}"
    return None


def skip_optional(reason: str) -> NoReturn:
    """Skip the present test for want of something that no machine is asked to have."""
    pytest.skip(OPTIONAL + reason)


def report() -> tuple[list[str], bool]:
    """Return one line per part, and whether all required ones are there."""
    lines, is_complete = [], True
    for part in PARTS.values():
        if (missing := _missing(part)) is None:
            lines.append(f"{part.name:13} found    {part.find()}")
        elif part.name in required():
            lines.append(f"{part.name:13} REQUIRED for {part.skipped}: {missing}")
            is_complete = False
        else:
            lines.append(f"{part.name:13} skipped  {part.skipped}: {missing}")
    return lines, is_complete


def main() -> int:
    """Print the report and return the exit code."""
    try:
        lines, is_complete = report()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
