"""Fixtures of the real parts, and the rule that nothing is skipped in silence where everything is required.

What the parts are and how to get them: tests/parts.py. What each fixture gives is in its docstring.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import parts
from tests.children import Child
from tests.controlplane import ControlPlane, clean, find_assets
from tests.examples import trying
from tests.redisserver import RedisServer

if TYPE_CHECKING:
    from tests.embedded import EmbeddedCluster

# For laws that do not say how many examples they try.
settings.register_profile("berth", parent=trying())
settings.load_profile("berth")

_MARKS = {
    "control_plane": "real",
    "bare_control_plane": "real",
    "fresh_control_plane": "real",
    "redis_server": "redis",
}


@pytest.hookimpl(tryfirst=True)  # before -m chooses by mark
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by the real parts that it uses, so that no test can forget to; name each one's group."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if mark := _MARKS.get(fixture):
                item.add_marker(mark)
        if config.getoption("loadgroup", False):
            _name_group(item)


def _name_group(item: pytest.Item) -> None:
    """Say the test's group in its id, by which pytest-xdist hands groups to one process each.

    It does so itself by an attribute that pytest 9.2 no longer reads: without this every process starts every
    server, and tests that must not meet do. https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    group = item.get_closest_marker("xdist_group")
    known = getattr(item, "_id", None)
    if group is not None and known is not None:
        item._id = type(known).parse(f"{known}@{group.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what is skipped though all is required, and show the servers' logs with a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _forbid_skip(report)
    if report.failed:
        report.sections.extend(
            (f"log of {child.name}", child.log_tail()) for child in _children(item) if child.log.exists()
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for whole modules that skip themselves."""
    report = yield
    if report.skipped:
        _forbid_skip(report)
    return report


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """Name what fails at once: the summary may be twenty minutes away."""
    if not (isinstance(report, pytest.TestReport) and report.failed):
        return None
    category = "failed" if report.when == "call" else "error"
    return category, f"\n{category.upper()} {report.nodeid}\n", category.upper()


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if parts.are_all_required() and not reason.removeprefix("Skipped: ").startswith(parts.OPTIONAL):
        report.outcome = "failed"
        report.longrepr = f"skipped, though BERTH_REQUIRE=all: {reason}"


def _children(item: pytest.Item) -> Iterator[Child]:
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, ControlPlane):
            yield from (value.etcd, value.apiserver, value.controller_manager, value.scheduler)
        elif isinstance(value, RedisServer):
            yield value.child
        else:
            yield from getattr(value, "children", ())


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_of_children() -> Iterator[None]:
    """Let children keep temporary files in a directory that goes with the tests: most are killed at the end.

    Its path is short, because sockets are made in it.
    """
    # The tests' own stay where pytest keeps those of the last runs.
    tempfile.gettempdir()
    with (
        tempfile.TemporaryDirectory(prefix="bt-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a real kube-apiserver with etcd, one per test process: work in a `namespace` of your own.

    A test that needs the real Job controller and scheduler calls `start_controllers`, which starts them once
    for all that follow; so no test may rely on their absence. One that disturbs the server itself takes
    `fresh_control_plane`.
    """
    parts.need("controlplane")
    with ControlPlane(find_assets(), tmp_path_factory.mktemp("controlplane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def bare_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a kube-apiserver without controllers, one per test process: objects stay as they are written."""
    parts.need("controlplane")
    with ControlPlane(find_assets(), tmp_path_factory.mktemp("bareplane")) as plane:
        yield plane


@pytest.fixture
def fresh_control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Give a control plane to this test alone, to kill, freeze and restart as it likes. Takes 3-5 s."""
    parts.need("controlplane")
    folder = tmp_path / "controlplane"
    folder.mkdir()
    with ControlPlane(find_assets(), folder) as plane:
        yield plane


@pytest.fixture
def clean_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Give the shared control plane without any object of Kueue's or Berth's, Job, Pod, Node or Lease."""
    clean(control_plane.rest)
    yield control_plane
    clean(control_plane.rest)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """Give the name of a new namespace on the shared control plane."""
    return control_plane.create_namespace()


@pytest.fixture
async def embedded_server(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """Give the embedded API server, in this process and on the test's event loop, to this test alone."""
    # Late, so that a fault in the server under test fails the tests that use it and no others.
    from tests.embedded import EmbeddedCluster

    async with EmbeddedCluster(tmp_path) as server:
        yield server


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a real Redis to this test alone."""
    parts.need("redis")
    folder = tmp_path / "redis"
    folder.mkdir()
    with RedisServer(folder) as server:
        yield server


@pytest.fixture(scope="session")
def kubectl() -> str:
    """Give the path of kubectl."""
    parts.need("kubectl")
    return parts.find_kubectl()
