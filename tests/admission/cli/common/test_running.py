"""How asynchronous commands end when they are stopped."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from admission.cli.common.running import run

SCRIPT = """
import asyncio, sys
from admission.cli.common.running import run

async def work():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaning", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("clean", flush=True)

try:
    run(work())
except KeyboardInterrupt:
    sys.exit(130)
"""


def start(cleaning_seconds: float, *, in_background: bool = False) -> subprocess.Popen[str]:
    """Start the script; `in_background` as a shell does it, with SIGINT ignored."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(cleaning_seconds)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_ignore_interrupts if in_background else None,
    )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


async def _answer() -> int:
    return 7


def test_work_that_ends_gives_its_code() -> None:
    assert run(_answer()) == 7


async def _fail() -> int:
    await asyncio.sleep(0)
    raise LookupError("x")


def test_work_that_fails_raises() -> None:
    with pytest.raises(LookupError):
        run(_fail())


@pytest.mark.parametrize(
    ("number", "in_background"),
    [
        pytest.param(signal.SIGINT, False, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, False, id="SIGTERM"),
        pytest.param(signal.SIGINT, True, id="SIGINT to a background job"),
    ],
)
def test_a_stop_lets_the_work_clean_up(number: signal.Signals, in_background: bool) -> None:
    with start(0.05, in_background=in_background) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        process.send_signal(number)

        assert (process.stdout.read(), process.wait(timeout=30)) == ("cleaning\nclean\n", 130)


def test_a_second_stop_does_not_wait() -> None:
    with start(3600) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        lines.append(process.stdout.readline())

        process.send_signal(signal.SIGINT)

        assert lines == ["ready\n", "cleaning\n"]
        assert (process.stdout.read(), process.wait(timeout=30)) == ("", 130)
