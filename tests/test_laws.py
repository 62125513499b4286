"""The command that tries all laws on many examples: what it finds, and how it shares its time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from tests import examples
from tests.laws.__main__ import Law, Outcome, Run, cut, grown, main, note, share

LAW = """
import hypothesis.strategies as st
from hypothesis import given

from tests.examples import trying


@trying(50)
@given(st.integers(0, 10_000))
def test_{name}(value: int) -> None:
    assert {holds}
"""

# The counterexample to `value < 40`, as hypothesis or pytest prints it.
SMALLEST = re.compile(r"\bvalue ?= ?40\b")


@pytest.fixture
def write_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Give what writes a module with one law to the working directory, and returns its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))

    def write(name: str, *, holds: str) -> str:
        path = tmp_path / f"test_{name}.py"
        path.write_text(LAW.format(name=name, holds=holds))
        return path.name

    return write


def make_laws(**seconds_each: float) -> list[Law]:
    return [Law(name, times=1, trying_seconds=seconds) for name, seconds in seconds_each.items()]


def test_a_law_that_holds_is_tried_on_many_times_its_examples(
    write_law: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    law = write_law("holds", holds="value <= 10_000")

    assert main([law, "--times", "3", "--minutes", "2", "--workers", "1"]) == 0

    printed = capsys.readouterr().out
    assert re.search(r"1 laws, 1 of them tried 3 times: 150 examples, seed \d+\n0 findings", printed)


@pytest.mark.parametrize(
    ("tried", "granted", "want"),
    [
        pytest.param(1, 99, 4, id="a law that was tried once is tried four more times first"),
        pytest.param(5, 95, 20, id="then twenty"),
        pytest.param(25, 75, 75, id="then all that are left"),
        pytest.param(25, 3, 3, id="never more than there is time for"),
        pytest.param(0, 10, 4, id="one whose first run was stopped begins as one that was tried once"),
    ],
)
def test_all_laws_grow_together(tried: int, granted: int, want: int) -> None:
    assert grown(Law("law", times=tried), granted) == want


def test_an_interrupted_search_shows_what_was_tried_until_then(
    write_law: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # It is asked once every law has been tried once.
    monkeypatch.setattr("tests.laws.__main__.share", interrupt)

    with pytest.raises(KeyboardInterrupt):
        main([write_law("holds", holds="value <= 10_000"), "--times", "3", "--minutes", "2"])

    assert "1 laws, 0 of them tried 3 times: 50 examples" in capsys.readouterr().out


def test_a_law_that_does_not_hold_is_a_finding_with_a_command_to_repeat_it(
    write_law: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    law = write_law("fails", holds="value < 40")

    assert main([law, "--times", "3", "--minutes", "2", "--workers", "1"]) == 1
    printed = capsys.readouterr().out
    assert SMALLEST.search(printed), printed
    repeat = re.search(r"make laws LAWS='(.+)' SEED=(\d+) TIMES=(\d+)", printed)
    assert repeat is not None

    assert main([repeat[1], "--seed", repeat[2], "--times", repeat[3], "--minutes", "2"]) == 1
    printed = capsys.readouterr().out
    assert SMALLEST.search(printed), printed


def test_where_there_are_no_laws_that_is_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "nowhere")])

    assert ended.value.code == 2
    assert "no laws found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(1000.0, {"quick": 9, "slow": 9}, id="time for all"),
        pytest.param(20.0, {"quick": 9, "slow": 2}, id="a quick law gets all, the slow one what is left"),
        pytest.param(10.0, {"quick": 5, "slow": 1}, id="time for a part of each"),
        pytest.param(0.0, {"quick": 0, "slow": 0}, id="no time"),
    ],
)
def test_the_time_is_shared(seconds: float, want: dict[str, int]) -> None:
    laws = make_laws(quick=0.1, slow=9.0) if seconds > 10 else make_laws(quick=1.0, slow=4.0)

    assert share(laws, times=10, seconds=seconds) == want


@pytest.mark.parametrize(
    ("output", "want"),
    [
        pytest.param(
            "during generate phase (2.00 seconds)\nduring shrink phase (1.00 seconds)", 3.0, id="printed"
        ),
        pytest.param("1 passed in 8.00s", 9.0, id="not printed by a state machine that a test runs by hand"),
    ],
)
def test_how_long_one_time_takes_is_read_off_a_run(output: str, want: float) -> None:
    law = Law("law")

    note(Outcome(run=Run(law=law, times=1, seed=1), seconds=9.0, output=output, code=0))

    assert law.seconds_each == want


def test_long_work_is_cut_into_runs_with_a_seed_each() -> None:
    (law,) = make_laws(slow=60.0)

    runs = cut(law, 7, count(5))

    assert [(run.times, run.seed) for run in runs] == [(3, 5), (3, 6), (1, 7)]


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²"])
def test_a_wrong_number_of_examples_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(examples.VARIABLE, text)

    with pytest.raises(ValueError, match="must be a whole number above 0"):
        examples.factor()


@pytest.mark.parametrize("flags", [["--times", "0"], ["--minutes", "1"], ["--workers", "0"]])
def test_wrong_flags_are_wrong_usage(flags: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(flags)

    assert ended.value.code == 2
