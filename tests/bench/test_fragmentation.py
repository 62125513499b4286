"""The benchmark of packing GPU shares, on a cluster of three nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.fragmentation import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,G2\nn1,64000,262144,2,G2\nn2,32000,262144,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\np1,8000,1024,1,1000\np2,8000,1024,0,0\n"
)


def test_every_strategy_allocates_all_gpus_where_everything_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    assert main(["--data", str(tmp_path), "--seeds", "2", "--out", str(tmp_path / "out.json")]) == 0

    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found) == ["random", "best-fit", "fgd", "ours"]
    assert all(50 < one["at_100"] <= one["at_130"] <= 100 for one in found.values())
    assert capsys.readouterr().out.count("\n") == 5


def test_a_directory_that_is_not_there_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path / "none")]) == 0
    assert "does not exist" in capsys.readouterr().out


def test_files_of_another_form_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.csv").write_text("name\nn0\n")
    assert main(["--data", str(tmp_path)]) == 2
    assert "cpu_milli" in capsys.readouterr().err
