"""Run seeds of the simulation: `python -m tests.faults --seeds 0..1000`, or `make soak`.

Each seed is a schedule of Jobs and faults. A seed that breaks a law is shrunk, and printed with the command
that repeats it. At the end follow how long clusters took to recover, and how often each fault struck in each
phase of the protocol. With --mutants, guards are taken out of the code, and the seeds have to notice.

Exit codes: 0 no law was broken; 1 a law was broken, a seed did not repeat itself, or a mutant was not found;
2 wrong usage.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from tests.children import tie_to_parent
from tests.faults.known import APART
from tests.faults.mutants import MUTANTS, Mutant
from tests.faults.phases import Phase
from tests.faults.schedule import Fault, Schedule, draw
from tests.faults.shrink import shrink
from tests.faults.world import Outcome, run

# Each seed of this number is run twice, which must bring the same to the last step.
_TWICE_EVERY = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", help="which seeds to run, the last one excluded: A..B (default: 0..100)")
    parser.add_argument("--schedule", type=Path, help="run the schedule of this file instead")
    parser.add_argument("--all", action="store_true", help="with the faults that are kept apart (known.py)")
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="check that its seed finds each mistake of mutants.py; with --seeds, which seed is the first to",
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes (default: 2)")
    options = parser.parse_args(arguments)
    prepare_process()
    if options.schedule is not None:
        outcome = run(msgspec.json.decode(options.schedule.read_bytes(), type=Schedule))
        print(*(outcome.broken or ["no law was broken"]), sep="\n")
        return bool(outcome.broken)
    if options.mutants and options.seeds is None:
        return _find_mutants(None, workers=options.workers)
    first, separator, last = (options.seeds or "0..100").partition("..")
    if not separator or not first.isdigit() or not last.isdigit():
        parser.error(f"--seeds {options.seeds}: expected A..B with two whole numbers")
    seeds = range(int(first), int(last))
    if options.mutants:
        return _find_mutants(seeds, workers=options.workers)
    return _run_seeds(seeds, () if options.all else APART, workers=options.workers)


def prepare_process() -> None:
    """Silence what killed processes leave behind, and keep the collector off what lives long."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)
    gc.collect()
    gc.freeze()


def _run_seeds(seeds: range, apart: tuple[frozenset[Fault], ...], *, workers: int) -> int:
    coverage: Counter[tuple[Fault, Phase]] = Counter()
    recoveries: list[float] = []
    failed = 0
    with _pool(workers) as pool:
        tried = pool.map(_try_seed, seeds, [apart] * len(seeds), chunksize=1)
        for seed, (outcome, report) in zip(seeds, tried, strict=True):
            coverage += outcome.coverage
            if outcome.recovery_seconds is not None:
                recoveries.append(outcome.recovery_seconds)
            if report:
                failed += 1
                print(f"seed {seed} {report}", flush=True)
    print(f"{len(seeds)} seeds, {failed} of them broke a law")
    if len(recoveries) > 1:
        cuts = statistics.quantiles(recoveries, n=100)
        print(f"at rest after all was healed: p50 {cuts[49]:.0f} s, p99 {cuts[98]:.0f} s")
    print(table(coverage))
    return failed > 0


def _pool(workers: int) -> ProcessPoolExecutor:
    # Without the tie the workers of a killed run wait for the next seed for ever.
    return ProcessPoolExecutor(workers, initializer=tie_to_parent, initargs=(os.getpid(),))


def _find_mutants(seeds: range | None, *, workers: int) -> int:
    """Print for each mutant the first of the seeds that finds it; return 1 if one was not found.

    Without `seeds` each has the one of the table, and those that have none there are left out.
    """
    numbers = [number for number, mutant in enumerate(MUTANTS) if seeds or mutant.seed is not None]
    width = max(len(mutant.title) for mutant in MUTANTS)
    missed = 0
    with _pool(workers) as pool:
        tried = pool.map(_first_seed, numbers, [seeds] * len(numbers))
        for number, (seed, law) in zip(numbers, tried, strict=True):
            missed += seed is None
            result = "not found" if seed is None else f"seed {seed}: {law}"
            print(f"{MUTANTS[number].title:<{width}}  {result}", flush=True)
    print(f"{len(numbers)} mutants, {missed} of them not found")
    return missed > 0


def _first_seed(number: int, seeds: range | None) -> tuple[int | None, str]:
    """Return the first seed of the mutant's faults that finds it, and the law that is broken."""
    mutant = MUTANTS[number]
    for seed in seeds or (mutant.seed,):
        law = _law_against(mutant, seed) if seed is not None else ""
        if law:
            return seed, law
    return None, ""


def _law_against(mutant: Mutant, seed: int) -> str:
    """Return the law that is broken by the mutant, and not without it; "" if the seed does not find it."""
    schedule = draw(seed, among=mutant.faults, at_once=mutant.at_once)
    with mutant.applied():
        law = run(schedule).law
    return law if law and not run(schedule).broken else ""


def _try_seed(seed: int, apart: tuple[frozenset[Fault], ...]) -> tuple[Outcome, str]:
    """Return the outcome of a seed, and what to print about it."""
    schedule = draw(seed, apart=apart)
    outcome = run(schedule)
    if outcome.broken:
        small = shrink(schedule, lambda smaller: run(smaller).law == outcome.law)
        return outcome, _report(seed, outcome, small, is_all=not apart)
    if seed % _TWICE_EVERY == 0 and run(schedule).digest != outcome.digest:
        return outcome, "did not repeat itself: the run depends on more than its seed"
    return outcome, ""


def _report(seed: int, outcome: Outcome, small: Schedule, *, is_all: bool) -> str:
    repeat = f"python -m tests.faults --seeds {seed}..{seed + 1}{' --all' if is_all else ''}"
    return "\n  ".join(
        (
            f"broke a law: {outcome.broken[0]}",
            f"repeat: {repeat}",
            f"shrunk to {small.size} events, which break: {run(small).broken[0]}",
            f"(put it into a file for --schedule) {msgspec.json.encode(small).decode()}",
        )
    )


def table(coverage: Counter[tuple[Fault, Phase]]) -> str:
    """Return how often each fault struck in each phase, one line for each fault."""
    width = max(len(fault) for fault in Fault)
    head = " " * width + "".join(f" {phase[:6]:>6}" for phase in Phase)
    rows = (
        f"{fault:<{width}}" + "".join(f" {coverage[fault, phase]:6}" for phase in Phase) for fault in Fault
    )
    return "\n".join((head, *rows))


if __name__ == "__main__":
    # The order of sets of strings depends on this number, so that a seed repeats itself in every process.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.faults", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
