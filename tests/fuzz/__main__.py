"""Give every target new inputs for some minutes: `python -m tests.fuzz --minutes N --seed S`.

Targets take turns, each turn with a seed of its own that follows from S. A finding is printed with the
smallest input that shows it, and with the command that repeats it; its target is left out from then on.

Exit codes: 0 no finding; 1 findings; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

_EXAMPLES_OF_A_TURN = 200


def search(target: Target, *, seed: int, examples: int, shrinks: bool = True) -> Callable[[], None]:
    """Return a function that gives the target so many inputs, drawn from `seed`.

    It raises the finding, with the smallest input that shows it if `shrinks`, which can take minutes.
    """

    def check(value: object) -> None:
        target(value)

    bounds = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
    )
    drawn: Callable[[], None] = seeded(seed)(bounds(given(target.inputs)(check)))
    return drawn


def run(targets: Sequence[Target], *, seed: int, until: float, examples: int = _EXAMPLES_OF_A_TURN) -> int:
    """Search in turns until `until` (monotonic), one turn each at least. Return the exit code."""
    left, tried, turn = list(targets), Counter[str](), 0
    while left and (turn == 0 or time.monotonic() < until):
        for target in list(left):
            if turn and time.monotonic() > until:
                break
            try:
                search(target, seed=seed + turn, examples=examples)()
            # Whatever a target raises is what is searched for.
            except Exception as finding:
                left.remove(target)
                _print(target, finding, seed=seed + turn)
            else:
                tried[target.name] += examples
        turn += 1
    for target in targets:
        print(f"{tried[target.name]:>9,}  {target.name}" + ("" if target in left else "  FINDING"))
    return int(len(left) < len(targets))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to search (default: 5)")
    parser.add_argument("--seed", type=int, help="of the first turn (default: another one each time)")
    parser.add_argument("--target", help="only the targets whose name contains this")
    parser.add_argument(
        "--examples", type=int, default=_EXAMPLES_OF_A_TURN, help="of each target in a turn (default: 200)"
    )
    options = parser.parse_args(arguments)
    targets = [target for target in TARGETS if (options.target or "") in target.name]
    if not targets:
        parser.error(
            f"--target {options.target}: expected a part of {', '.join(one.name for one in TARGETS)}"
        )
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    # Hundreds of refusals help no reader.
    logging.disable()
    until = time.monotonic() + 60 * options.minutes
    return run(targets, seed=seed, until=until, examples=options.examples)


def _print(target: Target, finding: Exception, *, seed: int) -> None:
    example = "\n".join(getattr(finding, "__notes__", ()))
    print(f"{target.name}: {type(finding).__name__}: {finding}\n{example}")
    print(f"again: python -m tests.fuzz --minutes 0 --seed {seed} --target '{target.name}'", flush=True)


if __name__ == "__main__":
    sys.exit(main())
