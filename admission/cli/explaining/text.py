"""The answer of `berth explain` as text: the verdict, then who, what would help, and all counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from admission.answers.explaining.answer import Answer
from admission.answers.explaining.verdict import held_lines, help_lines, history_lines, verdict
from admission.answers.holding import holding_lines
from admission.answers.run_time import run_time_line
from admission.cli.views.eviction_view import eviction_lines
from admission.cli.views.tables import make_table, names_text, print_table
from admission.flavors.flavor_score import FlavorScore
from admission.status.explain import DomainLine, FlavorLines, PodSetLines, TopologyLines
from api.parsing.quantities import to_text
from api.workload import Admission

# How many nodes one line names; the others are only counted.
_NAMED_NODES = 4


def print_answer(console: Console, answer: Answer, *, now: float) -> None:
    """Print the answer; `now` is in Unix seconds."""
    queue = answer.cluster_queue or "no ClusterQueue"
    place = (
        f", {answer.position} of {answer.waiting} in the queue" if answer.position and answer.waiting else ""
    )
    console.print(f"{answer.workload.key}: {answer.state} in {queue}{place}", style="bold")
    if answer.holding is None:
        console.print(verdict(answer, now=now))
    if answer.message:
        console.print(f"{answer.reason}: {answer.message}", style="yellow")
    print_evictions(console, answer, now=now)
    for line in (*held_lines(answer, now=now), *help_lines(answer, now=now), *history_lines(answer)):
        console.print(line)
    print_holding(console, answer, now=now)
    run_time = run_time_line(answer.run_time) if answer.run_time is not None else None
    if run_time is not None:
        console.print(run_time)
    if answer.move is not None:
        console.print(f"\n{answer.move.message}; it may be moved there")
    for pod_set in answer.pod_sets:
        _print_pod_set(console, pod_set)
    if answer.is_partial:
        console.print("\nWith your rights, flavors, nodes and what others hold are not shown.")


def print_evictions(console: Console, answer: Answer, *, now: float) -> None:
    """Print why it was stopped, and from which checkpoint it continues."""
    for line in eviction_lines(answer.workload, answer.eviction, now=now):
        console.print(line)


def print_holding(console: Console, answer: Answer, *, now: float) -> None:
    """Print where it runs, since when and until when, if it holds quota."""
    if answer.holding is not None:
        for line in holding_lines(answer.holding, now=now):
            console.print(line)
        _print_admission(console, answer.holding.admission)


def _print_admission(console: Console, admission: Admission) -> None:
    for one in admission.pod_sets:
        flavors = ", ".join(f"{flavor} for {name}" for name, flavor in sorted(one.flavors.items()))
        console.print(f"\npod set {one.name}, {one.count} pods, runs on {flavors}")
        for domain in one.topology.domains if one.topology is not None else ():
            console.print(f"  {' / '.join(domain.values)}: {domain.count} pods")


def _print_pod_set(console: Console, pod_set: PodSetLines) -> None:
    console.print(f"\npod set {pod_set.name}, {pod_set.count} pods", style="bold")
    columns = ("FLAVOR", "RESOURCE", "WANTED", "FREE", "AT MOST", "RESULT")
    table = make_table(*columns, right=("WANTED", "FREE", "AT MOST"))
    for flavor in pod_set.flavors:
        for line in _quota_lines(flavor):
            table.add_row(*line)
    print_table(console, table)
    scored = [(one.flavor, one.score) for one in pod_set.flavors if one.score is not None]
    if scored:
        console.print("\nscores of the flavors; of those that fit now the highest one is taken", style="bold")
        print_table(console, _score_table(scored))
    for flavor in pod_set.flavors:
        if flavor.topology is not None:
            _print_topology(console, flavor.flavor, flavor.topology)


def _score_table(scored: Sequence[tuple[str, FlavorScore]]) -> Table:
    columns = ("SCORE", "WAIT", "COST", "LOSS", "GENERATION", "FRAGMENTATION")
    table = make_table("FLAVOR", *columns, right=columns)
    for flavor, one in sorted(scored, key=lambda each: -each[1].score):
        terms = one.terms
        table.add_row(
            flavor,
            f"{one.score:.3f}",
            f"{one.wait:.2f} ({terms.wait_seconds:.0f} s)",
            f"{one.cost:.2f} ({'no price' if terms.cost is None else f'{terms.cost:.2f}'})",
            f"{one.loss:.2f} ({terms.lost_seconds:.0f} s)",
            f"{one.generation:.2f} ({terms.generation or 'unknown'})",
            f"{one.fragmentation:.2f} ({terms.left_over:.0%} left over)",
        )
    return table


def _quota_lines(flavor: FlavorLines) -> Iterator[tuple[str, ...]]:
    # A flavor that is excluded has no amounts to compare.
    if flavor.refusal:
        yield flavor.flavor, "", "", "", "", flavor.refusal
    for one in flavor.quota:
        amounts = [to_text(one.resource, amount) for amount in (one.wanted, one.free, one.most)]
        if one.fits:
            result = "fits"
        # Waiting does not help in this case, so the text differs from "more needed".
        elif one.wanted > one.most:
            result = "more than this ClusterQueue can ever use"
        else:
            # Usage may exceed a lowered quota. Then the whole request is needed.
            result = f"{to_text(one.resource, one.wanted - max(one.free, 0))} more needed"
        yield flavor.flavor, one.resource, *amounts, result


def _print_topology(console: Console, flavor: str, topology: TopologyLines) -> None:
    console.print(f"\ntopology of flavor {flavor}: {topology.problem or topology.wanted}", style="bold")
    if topology.problem:
        return
    table = make_table(
        "DOMAIN", "PODS THAT FIT", "WHEN EMPTY", "RESULT", right=("PODS THAT FIT", "WHEN EMPTY")
    )
    for line in _merged(topology.domains, len(topology.levels)):
        table.add_row(*line)
    print_table(console, table)
    # Group nodes by reason: fifty nodes with the same taint are one line.
    if topology.left_out:
        console.print("left out:")
    for refusal, nodes in groupby(sorted(topology.left_out, key=lambda one: one[1]), key=lambda one: one[1]):
        console.print(f"  {names_text([name for name, _ in nodes], most=_NAMED_NODES)}: {refusal}")


def _merged(domains: Sequence[DomainLine], depth: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield a line for each domain; hosts with the same parent and the same result share a line."""

    def kind(one: DomainLine) -> tuple[object, ...]:
        # Racks have lines of their own, because their names show where to look. Hosts are too many for that.
        alike = one.values[:-1] if one.level == depth - 1 else one.values
        return one.level, alike, one.fits, one.fits_empty, one.refusal

    for _, group in groupby(domains, key=kind):
        lines = list(group)
        first = lines[0]
        name = "  " * first.level + names_text([one.values[-1] for one in lines], most=_NAMED_NODES)
        yield name, str(first.fits), str(first.fits_empty), first.refusal
