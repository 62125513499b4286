"""Failpoints: what arms one, and at which pass it fires."""

from __future__ import annotations

import os
import signal
import time

import pytest

from admission.controller.runtime.failpoints import Failpoint, Step


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of what would have happened to the process."""
    happened: list[str] = []
    monkeypatch.setattr(time, "sleep", lambda _: happened.append("block"))
    monkeypatch.setattr(os, "_exit", lambda code: happened.append(f"exit {code}"))
    monkeypatch.setattr(os, "kill", lambda _, number: happened.append(signal.Signals(number).name))
    return happened


@pytest.mark.parametrize(
    ("text", "passes", "want"),
    [
        pytest.param(None, 2, [], id="without a failpoint nothing happens"),
        pytest.param("", 2, [], id="an empty one arms nothing"),
        pytest.param("after-patch", 2, ["exit 137"], id="the first pass ends the process"),
        pytest.param("after-patch:2", 1, [], id="one pass is not the second"),
        pytest.param("after-patch:2", 3, ["exit 137"], id="the second pass does"),
        pytest.param("after-patch:1:stop", 2, ["SIGSTOP"], id="it may stop the process instead"),
        pytest.param("after-patch:1:block", 2, ["block"], id="or block its event loop"),
        pytest.param("after-patch:0", 3, [], id="none at all means never"),
        pytest.param("before-patch", 3, [], id="other steps pass"),
    ],
)
def test_a_failpoint_fires_once_at_its_pass(
    fired: list[str], text: str | None, passes: int, want: list[str]
) -> None:
    failpoint = Failpoint(text)

    for _ in range(passes):
        failpoint.reach(Step.AFTER_PATCH)

    assert fired == want


@pytest.mark.parametrize("text", ["nowhere", "after-patch:soon", "after-patch:1:sleep", ":2"])
def test_a_misspelt_failpoint_is_refused_with_the_steps_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected STEP.*after-create, after-evict"):
        Failpoint(text)
