"""The clock of the lease goes on while the machine is suspended."""

from __future__ import annotations

import sys
import time

import pytest

from admission.controller.runtime.clock import SystemClock
from api.kube.boottime import boottime


@pytest.mark.skipif(sys.platform != "linux", reason="optional: elsewhere the monotonic clock counts suspends")
def test_it_is_the_clock_that_counts_the_time_of_a_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of suspend, of which CLOCK_MONOTONIC knows nothing."""
    clocks = {time.CLOCK_MONOTONIC: 100.0, time.CLOCK_BOOTTIME: 3700.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)

    assert boottime() == 3700.0
    assert SystemClock().monotonic() == 3700.0
