"""The score of a flavor for a Workload that fits it now: pure functions of what is known of both.

    score = Σ weight × part        (weights of the policy, adding up to 1; each part from 0 to 1, 1 is best)

    part            term (unit)                                     part of the term
    wait            expected wait of the next Workload like it (s)  run ÷ (run + wait)
    cost            device price × devices × (run + loss) (money)   1 − cost ÷ that of the dearest flavor
    loss            work that interruptions repeat (s)              run ÷ (run + loss)
    generation      generation of the flavor's GPUs (number)        generation ÷ newest of the flavors
    fragmentation   GPUs left over on the nodes that the pods       1 − left over ÷ all GPUs of these nodes
                    take (share)

A term that is the same for all flavors does not decide, so a cluster without prices, spot nodes or labels is
served by the other terms. What is not known counts as the worst of the flavors: a flavor without a price as
the dearest, GPUs without a generation as the oldest.

The wait is Sakasegawa's approximation for a queue with c servers, of which a share ρ is busy:

    wait = run × ρ^(√(2(c + 1)) − 1) ÷ (c (1 − ρ))        c: Workloads like this one that the flavor can hold

The loss is Daly's: with an interruption every m seconds on average, restarts of r seconds, and τ seconds
between checkpoints (the whole run without any), n segments of τ seconds take n (m + r)(e^(τ/m) − 1) seconds.
Sources: Sakasegawa 1977, An approximation formula Lq = αρ^β/(1−ρ); Daly 2006, A higher order estimate of the
optimum checkpoint interval for restart dumps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, sqrt

from api.policy import FlavorWeights

# A fuller queue counts as this full: the approximation has a pole at 1, and waits are only compared.
_FULLEST = 0.98
# The most expected interruptions between two checkpoints. More of them make a run as good as endless.
_MOST_INTERRUPTIONS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorTerms:
    """What a flavor means for one Workload. Times are in seconds.

    `cost` is in the currency of the prices, None where no price is known. `generation` is 0 for an unknown
    one. `left_over` is the share of GPUs that its pods leave on the nodes that they take.
    """

    run_seconds: float
    wait_seconds: float = 0.0
    cost: float | None = None
    lost_seconds: float = 0.0
    generation: int = 0
    left_over: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorScore:
    """The score of a flavor and its parts, each from 0 to 1, with the terms that they follow from."""

    score: float
    wait: float
    cost: float
    loss: float
    generation: float
    fragmentation: float
    terms: FlavorTerms


def score_flavors(flavors: Sequence[FlavorTerms], weights: FlavorWeights) -> tuple[FlavorScore, ...]:
    """Return the score of each flavor, in their order, compared with each other."""
    dearest = max((one.cost for one in flavors if one.cost is not None), default=0.0)
    newest = max((one.generation for one in flavors), default=0)
    return tuple(_score(one, weights, dearest=dearest, newest=newest) for one in flavors)


def _score(terms: FlavorTerms, weights: FlavorWeights, *, dearest: float, newest: int) -> FlavorScore:
    run = terms.run_seconds
    wait, loss = (run / (run + more) for more in (terms.wait_seconds, terms.lost_seconds))
    cost = 0.0 if terms.cost is None or dearest <= 0 else 1 - terms.cost / dearest
    generation = terms.generation / newest if newest else 0.0
    fragmentation = 1 - terms.left_over
    return FlavorScore(
        score=(
            weights.expected_wait * wait
            + weights.cost * cost
            + weights.expected_loss * loss
            + weights.generation * generation
            + weights.fragmentation * fragmentation
        ),
        wait=wait,
        cost=cost,
        loss=loss,
        generation=generation,
        fragmentation=fragmentation,
        terms=terms,
    )


def expected_wait(run_seconds: float, *, asked: int, demand: float, capacity: int) -> float:
    """Return the expected wait in seconds of the next Workload that asks for `asked` of `capacity` units.

    `demand` is what is used and waited for, this Workload included, in the same units.
    """
    if asked <= 0 or capacity <= 0:
        return 0.0
    servers = max(1, capacity // asked)
    busy = min(_FULLEST, max(0.0, demand / capacity))
    full: float = busy ** (sqrt(2 * (servers + 1)) - 1)
    return run_seconds * full / (servers * (1 - busy))


def expected_loss(
    run_seconds: float, *, mean_seconds: float | None, interval_seconds: float | None, restart_seconds: float
) -> float:
    """Return the expected seconds of a run that are repeated work and restarts.

    `mean_seconds` is the mean time between interruptions of the whole Workload, None where there are none.
    `interval_seconds` is that between its checkpoints, None where it saves none.
    """
    if mean_seconds is None or run_seconds <= 0:
        return 0.0
    segment = run_seconds if interval_seconds is None else min(interval_seconds, run_seconds)
    per_segment = (mean_seconds + restart_seconds) * expm1(min(_MOST_INTERRUPTIONS, segment / mean_seconds))
    return max(0.0, run_seconds / segment * per_segment - run_seconds)


def left_over(pods: Sequence[tuple[int, int]], gpus_per_node: int) -> float:
    """Return the share of GPUs that pods leave over on the nodes that they take, were these nodes empty.

    `pods` are pairs of a number of pods and the GPUs of each of them.
    """
    asked = sum(count * gpus for count, gpus in pods)
    if not asked or gpus_per_node <= 0:
        return 0.0
    # Pods that are larger than a node of the average size fill theirs.
    nodes = sum(-(-count // max(1, gpus_per_node // gpus)) for count, gpus in pods if gpus)
    return max(0.0, 1 - asked / (nodes * gpus_per_node))
