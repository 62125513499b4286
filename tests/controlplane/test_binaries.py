"""The control plane is built once, whole or not at all; where it cannot be built, the error says why."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.controlplane import __main__ as command
from tests.controlplane import binaries
from tests.controlplane.binaries import PROGRAMS, AssetsMissing, build, cache_folder, find_assets, find_go
from tests.controlplane.owner_controllers import LEADER_WORKER_SETS, build_controller, find_controller

# A replacement for Go: writes its arguments to a log and the program to where -o says.
_GO = """#!/bin/sh
case "$1" in
env) echo "{version}" ;;
build)
    echo "$@" >> "{folder}/calls"
    while [ "$1" != "-o" ]; do shift; done
    {build}
    ;;
mod) echo '{{"Dir": "{folder}/module"}}' ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache in it and no Go anywhere."""
    monkeypatch.setenv("BERTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(binaries, "USUAL_GO", str(tmp_path / "no-go"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def install_go(folder: Path, *, version: str = "go1.26.0", build: str = 'echo program > "$2"') -> None:
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(_GO.format(version=version, folder=folder, build=build))
    go.chmod(0o755)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_a_second_build_finds_the_first_ones_programs(folder: Path) -> None:
    install_go(folder)

    built = build(print)

    assert build(print) == built == find_assets()
    assert built.has(*PROGRAMS)
    assert len(calls(folder)) == len(PROGRAMS)


def test_of_two_parallel_builds_one_waits_for_the_other(folder: Path) -> None:
    install_go(folder)
    threads = [threading.Thread(target=build, args=[print]) for _ in range(2)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(calls(folder)) == len(PROGRAMS)


def test_the_api_server_is_built_with_its_version(folder: Path) -> None:
    install_go(folder)

    build(print)

    assert all("gitVersion=v1.36.3 " in call and "gitMinor=36 " in call for call in calls(folder))


def test_a_failed_build_leaves_nothing_and_says_why(folder: Path) -> None:
    install_go(folder, build='echo "dial tcp: no route to host" >&2; exit 1')

    with pytest.raises(AssetsMissing, match="building etcd failed: dial tcp: no route to host"):
        build(print)

    assert not cache_folder().exists()
    assert [path.suffix for path in (folder / "cache").iterdir()] == [".lock"]
    with pytest.raises(AssetsMissing, match="no etcd and kube-apiserver in"):
        find_assets()


def test_a_machine_without_go_gets_an_error_of_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["build"]) == 1

    assert capsys.readouterr().err.startswith("control plane: Go is not installed")
    assert folder.exists()


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param(
            "go1.19.8", "is go1.19.8, but go1.21 or later is needed", id="too old to fetch a newer one"
        ),
        pytest.param("", "does not report its version", id="no Go at all behind the name"),
    ],
)
def test_a_go_that_will_not_do_is_named(folder: Path, version: str, want: str) -> None:
    install_go(folder, version=version)

    with pytest.raises(AssetsMissing, match=want):
        find_go()


def test_given_programs_come_before_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(folder)
    build(print)
    given = folder / "given"
    given.mkdir()
    for name in binaries.NEEDED:
        (given / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))

    assets = find_assets()

    assert assets.folder == given
    with pytest.raises(AssetsMissing, match="has no kube-scheduler"):
        assets.program("kube-scheduler")


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        pytest.param(
            {"BERTH_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own", id="our own variable comes first"
        ),
        pytest.param({"XDG_CACHE_HOME": "/xdg"}, "/xdg/berth", id="then the desktop's"),
        pytest.param({"HOME": "/home/ann"}, "/home/ann/.cache/berth", id="else the home directory"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], want: str
) -> None:
    for name in ("BERTH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert cache_folder().parent == Path(want)
    assert cache_folder().name.startswith("controlplane-v1.36.3-etcd-v3.6.8-")


def test_the_controller_of_leader_worker_sets_comes_with_the_definition_of_its_kind(folder: Path) -> None:
    install_go(folder)
    definitions = folder / "module" / "config" / "crd" / "bases"
    definitions.mkdir(parents=True)
    (definitions / "leaderworkerset.x-k8s.io_leaderworkersets.yaml").write_text("kind: Definition")

    built = build_controller(LEADER_WORKER_SETS, print)

    assets = find_controller(LEADER_WORKER_SETS)
    assert assets.program.parent == built
    assert assets.definitions == [{"kind": "Definition"}]


def test_without_that_controller_the_error_says_how_to_build_it(folder: Path) -> None:
    del folder
    with pytest.raises(AssetsMissing, match="`make leaderworkerset` builds it"):
        find_controller(LEADER_WORKER_SETS)
