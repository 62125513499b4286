"""Flags of `berth simulate` for the simulated cluster: arrival of work, cost of evictions, faults."""

from __future__ import annotations

import argparse

from admission.cli.common.arguments import hours_between_faults, positive_number, seconds, share
from admission.simulation.settings import Checkpoints, EstimateKind, Faults, Queues


def add_work_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for the arrival of work and for what policies know about it."""
    parser.add_argument(
        "--queues",
        type=Queues,
        choices=tuple(Queues),
        default=Queues.ONE,
        help="one ClusterQueue, or one per tenant in a cohort (default: %(default)s)",
    )
    parser.add_argument(
        "--load",
        type=positive_number,
        default=1.0,
        metavar="L",
        help="Jobs arrive L times as fast as recorded (default: %(default)g)",
    )
    parser.add_argument(
        "--estimates",
        type=_estimates,
        default=EstimateKind(),
        metavar="exact|learned|xF",
        help="run times that policies know: exact, learned from earlier Jobs, or F times the exact ones"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--declaring-share",
        type=share,
        metavar="SHARE",
        help="share of the Jobs that declare their run time (default: 1, with --estimates learned 0)",
    )


def _estimates(text: str) -> EstimateKind:
    if text in ("exact", "learned"):
        return EstimateKind(is_learned=text == "learned")
    try:
        return EstimateKind(factor=positive_number(text.removeprefix("x")))
    except argparse.ArgumentTypeError:
        message = f"{text!r} is not exact, learned or a factor such as x2"
        raise argparse.ArgumentTypeError(message) from None


def add_attempt_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for the time that stopping and restarting a Job takes, and for the price of a GPU."""
    for flag, default, text in (
        ("--save-seconds", 30.0, "from an eviction until the GPUs are free, all work saved"),
        ("--restart-seconds", 30.0, "from a further start until useful work continues"),
        ("--checkpoint-interval-seconds", 1800.0, "between periodic checkpoints"),
        ("--min-runtime-seconds", 600.0, "that an attempt runs before an equal may preempt it"),
    ):
        _add_seconds(parser, flag, default, text)
    parser.add_argument(
        "--cost-per-gpu-hour",
        type=positive_number,
        metavar="COST",
        help="price of a GPU per hour, to report the cost of lost GPU-hours (default: not reported)",
    )


def add_fault_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for faults and their frequency."""
    parser.add_argument(
        "--node-mtbf-hours",
        type=hours_between_faults,
        metavar="H",
        help="mean hours between two losses of the same node, 1 or more (default: none is lost)",
    )
    _add_seconds(parser, "--repair-seconds", Faults().repair_seconds, "until a lost node is back")
    parser.add_argument(
        "--crash-mtbf-gpu-hours",
        type=hours_between_faults,
        metavar="H",
        help="mean GPU-hours between two crashes of Jobs, 1 or more (default: none crashes)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed for faults, checkpoint intervals and what Jobs declare (default: %(default)s)",
    )


def add_checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for periodic and requested checkpoints, for policies that preempt."""
    checkpoints = Checkpoints()
    parser.add_argument(
        "--checkpoint-minutes",
        type=_interval,
        default=(checkpoints.least_interval_seconds / 60, checkpoints.most_interval_seconds / 60),
        metavar="LOW-HIGH",
        help="range of the minutes between a Job's checkpoints, drawn log-uniformly; for policies that"
        " preempt (default: 10-120)",
    )
    parser.add_argument(
        "--publishing-share",
        type=share,
        default=checkpoints.publishing_share,
        metavar="SHARE",
        help="share of Jobs that report checkpoints and save on request (default: %(default)g)",
    )
    parser.add_argument(
        "--save-on-sigterm",
        action="store_true",
        help="Jobs that report checkpoints save at SIGTERM and declare it, under every policy that preempts",
    )
    _add_seconds(
        parser, "--notice-seconds", checkpoints.notice_seconds, "until a Job notices a request to save"
    )


def _add_seconds(parser: argparse.ArgumentParser, flag: str, default: float, text: str) -> None:
    parser.add_argument(
        flag, type=seconds, default=default, metavar="S", help=f"{text} (default: {default:g})"
    )


def _interval(text: str) -> tuple[float, float]:
    low, dash, high = text.partition("-")
    found = positive_number(low), positive_number(high if dash else low)
    if found[0] > found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: the first number must be the smaller one, as in 10-120")
    return found
