"""The table of requirements, their tests and their breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import coverage_table
from tests.coverage_table import (
    GUARDS,
    Break,
    BreakError,
    guarding_tests,
    marked_tests,
    read_breaks,
    run,
    table,
    try_break,
)

CODE = "def twice(n):\n    return 2 * n\n"
A_TEST = """
import pytest
from code_of_test import twice

@pytest.mark.covers("000_01", "000_02")
def test_twice():
    assert twice(2) == 4

@pytest.mark.parametrize("n", [pytest.param(0, marks=pytest.mark.covers("000_02")), 1])
def test_nothing(n):
    assert twice(0) == 0
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a folder with code and a marked test."""
    (tmp_path / "code_of_test.py").write_text(CODE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    covers\n    real\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_code.py").write_text(A_TEST)
    return tmp_path


def test_marks_of_tests_and_of_their_cases_are_found(project: Path) -> None:
    assert marked_tests(project / "tests") == {
        "000_01": ("tests/test_code.py::test_twice",),
        "000_02": ("tests/test_code.py::test_twice", "tests/test_code.py::test_nothing"),
    }


@pytest.mark.parametrize(
    ("after", "test", "want"),
    [
        pytest.param("3 * n", "test_twice", "noticed", id="a test that fails notices"),
        pytest.param("3 * n", "test_nothing", "NOT NOTICED", id="one that passes does not"),
    ],
)
def test_a_break_is_noticed_by_a_test_that_fails(project: Path, after: str, test: str, want: str) -> None:
    one = Break(requirement="000_01", file="code_of_test.py", before="2 * n", after=after)

    assert try_break(one, [f"tests/test_code.py::{test}"], project, with_real=False) == want
    assert (project / "code_of_test.py").read_text() == CODE, "it is undone"


def test_a_requirement_without_a_test_is_not_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_table, "lay_out", lambda _: None)

    assert run({}, [Break(requirement="9", file="f", before="a", after="b")], with_real=False) == 1
    assert "9 NOT NOTICED" in capsys.readouterr().out


def test_every_break_matches_the_code_and_has_a_test() -> None:
    assert read_breaks().keys() <= marked_tests().keys()


def test_every_break_of_a_guard_matches_the_code_and_has_a_test() -> None:
    tests = guarding_tests()

    assert read_breaks(GUARDS).keys() <= tests.keys()
    assert not [name for name, found in tests.items() if not found]


def test_a_break_that_matches_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "breaks.toml"
    path.write_text('["000_01"]\nfile = "api/keys.py"\nbefore = "no such text"\nafter = ""\n')

    with pytest.raises(BreakError, match=r"000_01: 'no such text' occurs 0 times in api/keys\.py"):
        read_breaks(path)


def test_the_table_has_a_line_for_each_requirement() -> None:
    one = Break(requirement="000_02", file="f.py", before="a | b\n  c", after="")

    assert list(table({"000_01": ("t.py::test",)}, {"000_02": one}))[2:] == [
        "| 000_01 | `t.py::test` | none |",
        "| 000_02 | none | `f.py`: `a \\| b c` → (removed) |",
    ]
