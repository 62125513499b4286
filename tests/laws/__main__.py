"""Try every law on examples that no run has tried: `python -m tests.laws`, or `make laws`.

Each law is tried on 100 times the examples that `make test` gives it, by processes with a seed each. First
is tried once, which shows how long its examples take. Then the time that is left is shared: quick
laws get all their examples, slow ones as many as there is time for. A finding is printed as it comes, with
the command that repeats it; a table of what was tried ends the output.

Exit codes: 0 no finding; 1 findings, or laws that could not be tried; 2 wrong usage; 130 interrupted, after
the table of what was tried until then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tests.examples import VARIABLE

# Of one process; longer work is cut into several, so that all processors have work until the end.
_LONGEST_SECONDS = 180.0
# What is left over so that processes that started late may end.
_MARGIN_SECONDS = 60.0
_PHASE = re.compile(r"during \w+ phase \((\d+\.\d+) seconds\)")
_TRIED = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing(?: examples)?, (?:and )?(\d+) invalid")


@dataclass(slots=True)
class Law:
    """One law, and what its runs have brought.

    `seconds` is how long they took, of which `trying_seconds` went to examples and the rest to starting.
    """

    node: str
    times: int = 0
    tried: int = 0
    seconds: float = 0.0
    trying_seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def seconds_each(self) -> float:
        """What one time its examples takes, starting aside; never 0."""
        return max(self.trying_seconds / max(self.times, 1), 1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process: `times` the examples of a law, drawn from `seed`."""

    law: Law
    times: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended; `code` is pytest's exit code, None where the time was up."""

    run: Run
    seconds: float
    output: str
    code: int | None


def find_laws(chosen: Sequence[str]) -> list[Law]:
    """Return all laws, or those of the given paths and node ids. Raises SystemExit(2) for none."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "hypothesis", *chosen]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    nodes = [line for line in answer.stdout.splitlines() if "::" in line]
    if answer.returncode != 0 or not nodes:
        print(f"no laws found:\n{answer.stdout[-2000:]}{answer.stderr[-2000:]}", file=sys.stderr)
        raise SystemExit(2)
    return [Law(node) for node in nodes]


class Processes:
    """The processes that try laws, each in a session of its own so that its servers end with it."""

    def __init__(self, *, until: float) -> None:
        self._until = until
        self._running: set[subprocess.Popen[str]] = set()

    def carry_out(self, run: Run) -> Outcome:
        """Carry out a run and return how it ended. It is ended when the time is up (`until`, monotonic)."""
        begun = time.monotonic()
        command = [
            *(sys.executable, "-m", "pytest", run.law.node, "-q", "--no-header", "-p", "no:cacheprovider"),
            *("--timeout=0", f"--hypothesis-seed={run.seed}", "--hypothesis-show-statistics"),
        ]
        environment = {**os.environ, VARIABLE: str(run.times)}
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                text=True,
            )
            self._running.add(child)
            try:
                code: int | None = child.wait(max(1.0, self._until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(child)
                code = None
            self._running.discard(child)
            output.seek(0)
            return Outcome(run=run, seconds=time.monotonic() - begun, output=output.read(), code=code)

    def kill(self) -> None:
        """End all that run."""
        for child in list(self._running):
            _kill(child)


def _kill(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def note(outcome: Outcome) -> None:
    """Add to the law what its run has brought, and print a finding at once."""
    law, run = outcome.run.law, outcome.run
    law.seconds += outcome.seconds
    phases = [float(seconds) for seconds in _PHASE.findall(outcome.output)]
    # A test that runs its state machine by hand has no statistics: then starting counts as trying.
    law.trying_seconds += sum(phases) if phases else outcome.seconds
    law.tried += sum(int(passing) + int(failing) for passing, failing, _ in _TRIED.findall(outcome.output))
    if outcome.code is None:
        law.is_stopped = True
        return
    law.times += run.times
    if outcome.code == 0:
        return
    law.findings.append(f"make laws LAWS='{law.node}' SEED={run.seed} TIMES={run.times}")
    print(f"\nFINDING in {law.node}\n{outcome.output}\nrepeat it: {law.findings[-1]}\n", flush=True)


def share(laws: Iterable[Law], *, times: int, seconds: float) -> dict[str, int]:
    """Return how many more times each law tries its examples in `seconds`, up to `times` in all.

    Every law gets the same share of the time; quick ones that need less leave the rest to the others.
    """
    costs = sorted((law.seconds_each, law.node, times - law.times) for law in laws if law.times < times)
    granted: dict[str, int] = {}
    # From the quickest on, so that what one leaves over is known before the next is served.
    for index, (cost, node, missing) in enumerate(costs):
        granted[node] = max(0, min(missing, int(seconds / (len(costs) - index) / cost)))
        seconds -= granted[node] * cost
    return granted


def grown(law: Law, granted: int) -> int:
    """Return how many of the granted times are tried in the next round: at most four times those so far.

    So no law has all its examples before the others have a good part of theirs, should the time not suffice.
    """
    return min(granted, 4 * max(1, law.times))


def cut(law: Law, times: int, seeds: Iterator[int]) -> list[Run]:
    """Return runs of a few minutes each that make up `times` times the law's examples."""
    most = max(1, int(_LONGEST_SECONDS / law.seconds_each))
    full, rest = divmod(times, most)
    return [Run(law=law, times=count, seed=next(seeds)) for count in [most] * full + [rest] if count]


def carry_out_all(runs: Sequence[Run], *, workers: int, until: float) -> None:
    """Carry out the runs, as many at a time as there are workers; a law with a finding is left alone."""
    left, going = list(reversed(runs)), set[Future[Outcome]]()
    processes = Processes(until=until)
    with ThreadPoolExecutor(workers) as pool, _ending(processes):
        while left or going:
            while left and len(going) < workers:
                run = left.pop()
                if run.law.findings or time.monotonic() > until:
                    run.law.is_stopped = run.law.is_stopped or not run.law.findings
                    continue
                going.add(pool.submit(processes.carry_out, run))
            done, going = wait(going, return_when=FIRST_COMPLETED) if going else (set(), going)
            for future in done:
                note(future.result())
                _show_progress(future.result(), len(left) + len(going))


@contextlib.contextmanager
def _ending(processes: Processes) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # An interrupt must not wait for minutes of work that is of no more use.
        processes.kill()
        raise


def _show_progress(outcome: Outcome, left: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{left} runs left, last {outcome.run.law.node[-70:]}", end="", file=sys.stderr)


def report(laws: Sequence[Law], *, times: int, seed: int) -> int:
    """Print what was tried and found. Returns the exit code."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{'times':>6} {'examples':>9} {'seconds':>8}  law")
    for law in sorted(laws, key=lambda law: law.node):
        mark = "  FINDING" if law.findings else "  stopped by the time" if law.is_stopped else ""
        print(f"{law.times:6} {law.tried:9,} {law.seconds:8.1f}  {law.node}{mark}")
    findings = [command for law in laws for command in law.findings]
    whole = sum(law.times >= times for law in laws)
    tried = sum(law.tried for law in laws)
    print(f"\n{len(laws)} laws, {whole} of them tried {times} times: {tried:,} examples, seed {seed}")
    print(f"{len(findings)} findings" + "".join(f"\n  {command}" for command in findings))
    return 1 if findings else 0


def read_flags(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.laws", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("laws", nargs="*", help="paths or node ids, as for pytest; default: all laws")
    parser.add_argument("--times", type=int, default=100, help="times the usual examples (default 100)")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most so long (default 60)")
    parser.add_argument("--seed", type=int, help="the first seed; default: a new one, which is printed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    flags = parser.parse_args(argv)
    if flags.times < 1 or flags.workers < 1 or not 2 <= flags.minutes <= 10_000:
        parser.error("--times and --workers must be above 0, --minutes from 2 to 10000")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Try the laws. Returns the exit code."""
    flags = read_flags(sys.argv[1:] if argv is None else argv)
    begun = time.monotonic()
    until = begun + flags.minutes * 60 - min(_MARGIN_SECONDS, flags.minutes * 12)
    seed = flags.seed if flags.seed is not None else secrets.randbelow(10**9)
    # A law under a seed of the user's own is repeated in one run, as the finding was made.
    laws = find_laws(flags.laws)
    if flags.seed is not None and len(laws) == 1:
        carry_out_all([Run(law=laws[0], times=flags.times, seed=seed)], workers=1, until=until)
        return report(laws, times=flags.times, seed=seed)
    seeds = iter(range(seed, seed + 10**6))
    print(f"{len(laws)} laws, {flags.times} times their examples, seed {seed}", flush=True)
    try:
        search(laws, seeds, times=flags.times, workers=flags.workers, until=until)
    except KeyboardInterrupt:
        # What an hour has shown so far is worth as much as before.
        report(laws, times=flags.times, seed=seed)
        raise
    return report(laws, times=flags.times, seed=seed)


def search(laws: Sequence[Law], seeds: Iterator[int], *, times: int, workers: int, until: float) -> None:
    """Try each law once, then in rounds up to so many times, until the time is up (`until`, monotonic)."""
    carry_out_all([Run(law=law, times=1, seed=next(seeds)) for law in laws], workers=workers, until=until)
    # In rounds, because the first measure of a law is a rough one, and the machine may get slower.
    while time.monotonic() < until:
        left = (until - time.monotonic()) * workers
        granted = share((law for law in laws if not law.findings), times=times, seconds=left)
        runs = [run for law in laws for run in cut(law, grown(law, granted.get(law.node, 0)), seeds)]
        if not runs:
            break
        # The long ones first, so that none is left alone at the end.
        runs.sort(key=lambda run: -run.times * run.law.seconds_each)
        carry_out_all(runs, workers=workers, until=until)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
