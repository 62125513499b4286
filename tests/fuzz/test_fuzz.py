"""Each target on a bounded number of examples, the same at every run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st

from tests.fuzz.__main__ import main, run, search
from tests.fuzz.target import MOST_SECONDS, Target, TooSlow
from tests.fuzz.targets import TARGETS

NUMBERS = Target(name="numbers", inputs=st.integers(), check=lambda _: None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Log nothing: hundreds of refusals help no reader."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


# The input of a finding is printed however large it is.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_input_that_breaks_rules_is_refused_with_a_sentence(target: Target) -> None:
    search(target, seed=17, examples=target.examples, shrinks=False)()


def test_a_finding_is_shrunk_and_printed_with_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse_long(value: object) -> None:
        assert len(str(value)) < 4, "too long"

    target = Target(name="strings", inputs=st.text("a"), check=refuse_long)

    assert run([target, NUMBERS], seed=5, until=0.0) == 1

    printed = capsys.readouterr().out
    assert "strings: AssertionError: too long" in printed
    assert "'aaaa'" in printed
    assert "python -m tests.fuzz --minutes 0 --seed 5 --target 'strings'" in printed
    assert "200  numbers\n" in printed


def test_an_input_that_keeps_the_code_busy_is_a_finding() -> None:
    def spin(_: object) -> None:
        until = time.thread_time() + MOST_SECONDS + 0.1
        while time.thread_time() < until:
            pass

    with pytest.raises(TooSlow, match=r"slow: 1\.\d s of CPU time"):
        Target(name="slow", inputs=st.none(), check=spin)(None)


def test_a_target_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--target", "nothing of this name"])

    assert ended.value.code == 2
    assert "quantities, durations" in capsys.readouterr().err
