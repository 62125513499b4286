"""A missing part is a skip that says so, and a failure where BERTH_REQUIRE names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts

_TESTS = """
import pytest
from tests import parts

def test_passes(): pass
def test_skips_itself(): pytest.skip("no mood")
def test_wants_the_impossible(): parts.skip_optional("no trace here")
def test_needs_what_is_missing(control_plane): pass
@pytest.mark.xfail
def test_is_known_to_fail(): assert False
"""
_SETTINGS = Path(__file__).parents[1] / "pyproject.toml"
_SKIPPED_MODULE = "import pytest; pytest.importorskip('no_such_module')"


def last_line(folder: Path, *, require: str) -> str:
    """Run pytest on the files of `folder`, on a machine without a control plane; return its closing line."""
    environment = {**os.environ, "BERTH_REQUIRE": require, "KUBEBUILDER_ASSETS": str(folder)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        str(_SETTINGS),
        "-q",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("require", "want"),
    [
        pytest.param("", "1 passed, 3 skipped, 1 xfailed", id="nothing is required, so all is skipped"),
        pytest.param(
            "controlplane", "1 passed, 2 skipped, 1 xfailed, 1 error", id="the missing part is required"
        ),
        pytest.param(
            "all", "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error", id="only an optional skip is allowed"
        ),
    ],
)
def test_require_turns_skips_into_failures(tmp_path: Path, require: str, want: str) -> None:
    (tmp_path / "test_samples.py").write_text(_TESTS)

    assert last_line(tmp_path, require=require).startswith(want)


@pytest.mark.parametrize(("require", "want"), [("", "1 skipped"), ("all", "1 error")])
def test_a_module_that_skips_itself_fails_where_all_is_required(
    tmp_path: Path, require: str, want: str
) -> None:
    (tmp_path / "test_sample.py").write_text(_SKIPPED_MODULE)

    assert last_line(tmp_path, require=require).startswith(want)


def test_the_report_names_what_is_missing_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.delenv("BERTH_REQUIRE", raising=False)

    lines, is_complete = parts.report()

    assert lines[0].startswith("controlplane  skipped  tests on the real kube-apiserver: no etcd")
    assert "make controlplane" in lines[0]
    assert is_complete


@pytest.mark.parametrize(
    ("require", "want"),
    [
        pytest.param("", 0, id="a missing part that is not required is no fault"),
        pytest.param("controlplane", 1, id="a required part that is missing is one"),
        pytest.param("controlplan", 2, id="a name that no part has is wrong usage"),
    ],
)
def test_the_exit_code_says_whether_what_is_required_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, require: str, want: int
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("BERTH_REQUIRE", require)

    assert parts.main() == want


@pytest.mark.xdist_group("told")
def test_the_group_of_a_test_reaches_the_scheduler(request: pytest.FixtureRequest) -> None:
    is_grouping = bool(request.config.getoption("loadgroup", False))

    assert request.node.nodeid.endswith("@told") is is_grouping
