"""bench.versus reads what Kueue's runner leaves, compares the runs, and says what is missing.

The runner and the controllers themselves take minutes to build and to run, so no test starts them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.versus import __main__ as command
from bench.versus import report
from bench.versus.build import build_kueue
from bench.versus.proxy import DelayingProxy
from bench.versus.report import Recorded, Turn, read_recorded, to_json, to_table
from bench.versus.shapes import SHAPES, Config, scaled, without_limits, workload_count
from tests.children import Port
from tests.controlplane import binaries

_SUMMARY = """
workloadClasses:
  large-required-rack: {averageTimeToAdmissionMs: 4000, count: 1, totalEvictions: 0}
  large-balanced-rack: {averageTimeToAdmissionMs: 1000, count: 3, totalEvictions: 2}
  small: {averageTimeToAdmissionMs: 500, count: 2, totalEvictions: 5}
  "": {averageTimeToAdmissionMs: 0, count: 1, totalEvictions: 0}
droppedWorkloadEvents: 7
"""
_WORKLOADS = """id,class name,namespace,name,ms to admitted,ms to finish,num evictions
0,small,cq-0,small-0,100,400,0
1,small,cq-0,small-1,100,0,5
2,,default,standing,0,0,0
"""

TURN = Turn(
    controller="Kueue",
    workloads=1000,
    seconds=40.0,
    controller_cpu=10.0,
    apiserver_cpu=50.0,
    etcd_cpu=5.0,
    runner_cpu=5.0,
    peak_mb=600.0,
    recorded=Recorded(evictions=20, admission_seconds={"small": 8.0}, unfinished=0, dropped_events=0),
)
BERTH = replace(TURN, controller="Berth", seconds=20.0, leader_losses=0, writes={"admit": 1010, "wait": 30})


def config(**counts: int) -> Config:
    """Return a configuration with two cohorts of three ClusterQueues, and these sets of Workloads."""
    sets = [{"count": count, "workloads": [{"className": name}]} for name, count in counts.items()]
    return {"cohorts": [{"count": 2, "queuesSets": [{"count": 3, "workloadsSets": sets}]}]}


def rows(table: str) -> dict[str, list[str]]:
    """Return the cells of a table that are not empty, by the label of their row."""
    cut = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return {label: cells for label, *cells in cut[1:]}


# The configurations


def test_a_scale_changes_the_workloads_and_not_the_queues() -> None:
    assert workload_count(config(small=350, large=50)) == 6 * 400
    assert scaled(config(small=350, large=50), 0.1) == config(small=35, large=5)


def test_each_class_keeps_a_workload_at_any_scale() -> None:
    assert scaled(config(small=350, large=4), 0.01) == config(small=4, large=1)


def test_scaling_leaves_the_configuration_itself_unchanged() -> None:
    scaled(original := config(small=10), 0.5)

    assert original == config(small=10)


def test_without_limits_no_shape_has_more_work_than_quota_of_one_queue() -> None:
    original = config(small=10_000)
    original["cohorts"][0]["queuesSets"][0]["nominalQuota"] = 20

    raised = without_limits(original)["cohorts"][0]["queuesSets"][0]

    assert raised["nominalQuota"] >= 20 * workload_count(original)
    assert original["cohorts"][0]["queuesSets"][0]["nominalQuota"] == 20


# What a run leaves


def test_the_classes_of_the_topology_shape_are_read_by_size(tmp_path: Path) -> None:
    (tmp_path / "summary.yaml").write_text(_SUMMARY)
    (tmp_path / "wlStates.csv").write_text(_WORKLOADS)

    assert read_recorded(tmp_path) == Recorded(
        evictions=7, admission_seconds={"large": 1.75, "small": 0.5}, unfinished=1, dropped_events=7
    )


# The table


def test_the_table_compares_the_two_controllers() -> None:
    found = rows(to_table([TURN, BERTH]))

    assert found["Workloads/s"] == ["25.0", "50.0", "2.00"]
    assert found["CPU s, all but controller"] == ["60.0", "60.0", "1.00"]
    assert found["s to admission, small"] == ["8.0", "8.0", "1.00"]
    assert "s to admission, large" not in found


def test_what_one_controller_does_not_have_is_left_empty() -> None:
    found = rows(to_table([TURN, BERTH]))

    assert found["leadership lost"] == ["0"]
    assert found["writes, admit"] == ["1,010"]


def test_several_runs_of_a_controller_have_a_median() -> None:
    turns = [replace(TURN, seconds=seconds) for seconds in (40.0, 90.0, 50.0)]

    table = to_table(turns)

    assert table.splitlines()[0].split() == ["Kueue", "1", "Kueue", "2", "Kueue", "3", "median"]
    assert rows(table)["seconds"] == ["40.0", "90.0", "50.0", "50.0"]


def test_a_purpose_of_writes_that_one_run_lacks_counts_as_none() -> None:
    turns = [BERTH, replace(BERTH, writes={"admit": 1000}), replace(BERTH, writes={"admit": 1000})]

    assert rows(to_table(turns))["writes, wait"] == ["30", "0", "0", "0"]


def test_all_columns_of_the_table_are_aligned() -> None:
    lines = to_table([TURN, BERTH]).splitlines()

    assert len({len(line) for line in lines}) == 1


def test_json_has_every_run_and_the_medians() -> None:
    second = replace(TURN, seconds=60.0)

    found = json.loads(to_json([TURN, BERTH, second], {"shape": "baseline"}))

    assert found["shape"] == "baseline"
    assert [turn["seconds"] for turn in found["turns"]] == [40.0, 20.0, 60.0]
    assert found["medians"]["Kueue"]["seconds"] == 50.0
    assert found["medians"]["Berth"]["writes.admit"] == 1010
    assert found["medians"]["Kueue"]["leader_losses"] is None


# The delay


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it receives, for one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1024):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_an_answer_comes_later_and_complete_however_many_reads_it_takes(echo: int) -> None:
    # Three hundred reads at the least: a minute, if they waited for each other.
    sent, reads, delay_seconds = b"x" * 20_000_000, 300, 0.2

    with (
        DelayingProxy(echo, delay_seconds) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        began = time.monotonic()
        client.sendall(sent)
        received = 0
        while received < len(sent):
            received += len(client.recv(65536))
        took = time.monotonic() - began

    assert delay_seconds <= took < reads * delay_seconds


def test_a_server_that_refuses_connections_closes_those_of_the_proxy() -> None:
    # Bound and never listening, so that no other server has it.
    port = Port()

    with (
        DelayingProxy(port.number, 0.2) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        assert client.recv(1) == b""
    port.release()


# The command

# A replacement for Go, as in tests/controlplane/test_binaries.py; its module has the files that are copied.
_GO = """#!/bin/sh
case "$1" in
env) echo go1.26.0 ;;
build) echo "$@" >> "{folder}/calls"; while [ "$1" != "-o" ]; do shift; done; echo program > "$2" ;;
list) echo "{folder}/module" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty cache and a replacement for Go."""
    monkeypatch.setenv("BERTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(binaries, "USUAL_GO", str(tmp_path / "no-go"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def install_go(folder: Path) -> None:
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(_GO.format(folder=folder))
    go.chmod(0o755)
    for shape in SHAPES.values():
        generator = folder / "module/test/performance/scheduler/configs" / shape.folder / "generator.yaml"
        generator.parent.mkdir(parents=True)
        generator.write_text(json.dumps(config(small=10)))
    definitions = folder / "module/config/components/crd/bases"
    definitions.mkdir(parents=True)
    (definitions / "workloads.yaml").write_text("kind: CustomResourceDefinition")


def test_kueue_is_built_once_with_its_configurations_and_definitions(folder: Path) -> None:
    install_go(folder)

    kueue = build_kueue(print)

    assert build_kueue(print) == kueue
    assert len((folder / "calls").read_text().splitlines()) == 2
    assert kueue.minimalkueue.is_file()
    assert kueue.runner.is_file()
    assert {shape: kueue.config(shape) for shape in SHAPES} == dict.fromkeys(SHAPES, config(small=10))
    assert kueue.definitions() == [{"kind": "CustomResourceDefinition"}]


def test_without_a_control_plane_one_line_says_how_to_get_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "no etcd and kube-apiserver" in err
    assert "`make controlplane` builds them once" in err


def test_without_go_one_line_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assets = folder / "assets"
    assets.mkdir()
    for name in binaries.NEEDED:
        (assets / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert command.main([]) == 1

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Go is not installed" in err


@pytest.mark.parametrize(
    ("arguments", "want_message"),
    [
        pytest.param(["--turns", "0"], "'0' is not a whole number above 0", id="no turns"),
        pytest.param(["--scale", "0"], "must be more than 0", id="a scale of 0"),
        pytest.param(["--scale", "nan"], "'nan' is not a number", id="a scale that is no number"),
        pytest.param(["--delay-ms", "-5"], "'-5' is not a number of 0 or more", id="a negative delay"),
        pytest.param(["--berth-config", "/none"], "there is no file /none", id="a missing configuration"),
        pytest.param(["--keep", "/tmp"], "/tmp exists already", id="a folder that is already there"),
        pytest.param(["--shape", "round"], "invalid choice: 'round'", id="an unknown shape"),
    ],
)
def test_wrong_usage_names_the_fault(
    arguments: list[str], want_message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)

    assert ended.value.code == 2
    assert want_message in capsys.readouterr().err


def test_every_class_of_the_shapes_has_a_row() -> None:
    recorded = replace(TURN.recorded, admission_seconds=dict.fromkeys(report.CLASSES, 1.0))

    found = rows(to_table([replace(TURN, recorded=recorded)]))

    assert [label for label in found if label.startswith("s to admission")] == [
        "s to admission, large",
        "s to admission, medium",
        "s to admission, small",
    ]
