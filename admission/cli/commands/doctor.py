"""`berth doctor`: the topology that node labels describe, and what would keep Berth from starting Jobs.

The command only reads from the API server. It checks the existing Topology objects. If there are none, it
selects the label preset that matches most nodes, and prints the Topology manifest for it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml
from rich.console import Console

from admission.cli.commands.doctor_checks import (
    Reader,
    flavor_problems,
    leftover_webhooks,
    misconfigured_workloads,
    policy_problems,
    quota_problems,
)
from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.views.tables import make_console, make_table, print_table
from admission.hardware.label_problems import hardware_problems
from admission.placement.topology.hierarchy import DomainHierarchy, inspect
from api.keys import HOSTNAME
from api.kube.client import KubeClient
from api.kube.errors import Forbidden
from api.kube.resources import NODES, TOPOLOGIES
from api.node import NodeInfo, to_node
from api.objects.cluster import NodeObject
from api.objects.queues import TopologyObject
from api.specs import to_topology
from api.topology_presets import PRESETS, find_preset, preset_levels

# Resources that every node may have. Any other resource with a domain in its name is a device.
_NOT_DEVICES = ("hugepages-", "attachable-volumes-")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "doctor",
        help_line="show the topology of a cluster, and what keeps Jobs from starting",
        description=(
            "Inspect a cluster: the hierarchy that its node labels describe, nodes that lack a level,\n"
            "labels that contradict each other, Workloads that no node can run, webhooks that a Kueue left\n"
            "behind, policies that are not in force, and a Topology to apply.\n"
            "It only reads, and names what it may not read. Exit code 1 means that something keeps Jobs\n"
            "from starting, or that a policy is not in force."
        ),
        examples=(
            "  berth doctor\n"
            "  berth doctor --levels example.com/block,example.com/rack,kubernetes.io/hostname\n"
            "  berth doctor --preset oci-rdma -o topology | kubectl apply -f -"
        ),
        run=_run,
    )
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "--preset",
        metavar="NAME",
        help=f"the labels of one source: {', '.join(one.name for one in PRESETS)}",
    )
    levels.add_argument(
        "--levels", metavar="KEYS", help="label keys, widest first, separated by commas; the host last"
    )
    parser.add_argument(
        "--all-nodes",
        action="store_true",
        help="include nodes without devices (default: only if no node has any)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "topology"),
        default="table",
        help="topology: only the manifest (default: table)",
    )
    add_kubeconfig(parser)


def _run(arguments: argparse.Namespace) -> int:
    return run(_doctor(arguments))


# --- diagnosis -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One list of levels, its source, and the hierarchy of the nodes by it."""

    source: str
    hierarchy: DomainHierarchy


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings. `obstacles` keep Jobs from starting; the problems of a view only exclude some nodes.

    `not_in_force` are policies that have no effect. `skipped` are the kinds that may not be read, of which
    nothing is known.
    """

    nodes: int
    ready: int
    devices: dict[str, int]
    views: tuple[ClusterView, ...]
    obstacles: tuple[str, ...]
    not_in_force: tuple[str, ...]
    unreadable: tuple[str, ...]
    skipped: tuple[str, ...]


async def _doctor(arguments: argparse.Namespace) -> int:
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        nodes, unreadable = await _read_nodes(client)
        reader = Reader(client)
        views = _views(arguments, _with_devices(nodes, arguments.all_nodes), await _topologies(reader))
        obstacles = [
            *await leftover_webhooks(reader),
            *await flavor_problems(reader),
            *await quota_problems(reader, nodes),
            *await misconfigured_workloads(reader),
        ]
        not_in_force = await policy_problems(reader)
    found = Diagnosis(
        nodes=len(nodes),
        ready=sum(node.is_ready for node in nodes),
        devices=_devices(nodes),
        views=views,
        obstacles=tuple(obstacles),
        not_in_force=tuple(not_in_force),
        skipped=tuple(reader.skipped),
        unreadable=(*unreadable, *(said for node in nodes for said in hardware_problems(node))),
    )
    _print(found, arguments.output)
    return ExitCode.DOES_NOT_HOLD if found.obstacles or found.not_in_force else ExitCode.DONE


async def _read_nodes(client: KubeClient) -> tuple[list[NodeInfo], list[str]]:
    try:
        listed = await client.list(NODES, type_=NodeObject)
    except Forbidden as error:
        raise Forbidden(
            f"{error}; berth doctor looks at the whole cluster: let an administrator run it",
            status=error.status,
        ) from error
    # Report unreadable nodes and continue with the others.
    nodes, problems = [], [str(one) for one in listed.unreadable]
    for one in listed.items:
        try:
            nodes.append(to_node(one))
        except ValueError as error:
            problems.append(f"Node {one.metadata.name}: {error}")
    return nodes, problems


async def _topologies(reader: Reader) -> list[tuple[str, tuple[str, ...]]]:
    # Without Kueue's kinds there are no Topologies; the nodes can still be checked.
    listed = await reader.list(TOPOLOGIES, TopologyObject)
    read = (to_topology(one) for one in sorted(listed, key=lambda one: one.metadata.name))
    return [(f"Topology {topology.name}", topology.levels) for topology in read]


def _with_devices(nodes: list[NodeInfo], all_nodes: bool) -> list[NodeInfo]:
    # Control planes and CPU nodes rightly lack rack labels. Listing them would hide the nodes that
    # should have such labels.
    equipped = [node for node in nodes if _devices([node])]
    return nodes if all_nodes or not equipped else equipped


def _devices(nodes: Sequence[NodeInfo]) -> dict[str, int]:
    total: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable.items():
            if "/" in resource and not resource.startswith(_NOT_DEVICES) and amount:
                total[resource] = total.get(resource, 0) + amount
    return dict(sorted(total.items()))


def _views(
    arguments: argparse.Namespace,
    nodes: Sequence[NodeInfo],
    topologies: Sequence[tuple[str, tuple[str, ...]]],
) -> tuple[ClusterView, ...]:
    """Return the requested levels, or else the existing Topologies, or else the best preset."""
    if arguments.levels:
        chosen = [("the levels given", tuple(key.strip() for key in arguments.levels.split(",")))]
        if not all(chosen[0][1]):
            raise WrongUsageError(
                f"--levels {arguments.levels!r} has an empty key; separate keys by one comma"
            )
    elif arguments.preset:
        chosen = [_preset(arguments.preset, nodes)]
    else:
        # Topologies in use take precedence over a preset that would match.
        chosen = list(topologies) or _best_preset(nodes)
    return tuple(ClusterView(source=source, hierarchy=inspect(nodes, levels)) for source, levels in chosen)


def _preset(name: str, nodes: Sequence[NodeInfo]) -> tuple[str, tuple[str, ...]]:
    try:
        preset = find_preset(name)
    except ValueError as error:
        raise WrongUsageError(str(error)) from error
    levels = preset_levels(preset, (node.labels for node in nodes))
    if not levels:
        raise WrongUsageError(f"no node carries a label of the preset {name}: {', '.join(preset.levels)}")
    return f"preset {name} ({preset.source})", levels


def _best_preset(nodes: Sequence[NodeInfo]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the preset whose levels most nodes have; of several, the one with most levels, or the first."""
    best: tuple[tuple[int, int], list[tuple[str, tuple[str, ...]]]] = ((0, 0), [])
    for preset in PRESETS:
        levels = preset_levels(preset, (node.labels for node in nodes))
        fit = (inspect(nodes, levels).complete_nodes, len(levels)) if levels else (0, 0)
        if fit > best[0]:
            best = fit, [(f"preset {preset.name} ({preset.source})", levels)]
    return best[1] or [("no preset fits; hosts alone", (HOSTNAME,))]


# --- output ----------------------------------------------------------------------------------------------


def _print(found: Diagnosis, output: str) -> None:
    if output == "topology":
        print(yaml.safe_dump(_manifest(found.views[0].hierarchy), sort_keys=False), end="")
    elif output == "json":
        views = [{**asdict(view), "topology": _manifest(view.hierarchy)} for view in found.views]
        print(json.dumps({**asdict(found), "views": views}))
    else:
        _print_table(make_console(), found)


def _print_table(console: Console, found: Diagnosis) -> None:
    devices = ", ".join(f"{amount} {resource}" for resource, amount in found.devices.items())
    console.print(f"{found.nodes} nodes, {found.ready} ready, {devices or 'no devices'}")
    for problem in found.unreadable:
        console.print(f"  ! {problem}", style="yellow")
    for view in found.views:
        _print_view(console, view)
    console.print()
    if found.obstacles:
        console.print("These keep Jobs from starting:", style="bold")
        for obstacle in found.obstacles:
            console.print(f"  ✗ {obstacle}", style="red")
    elif not found.skipped:
        console.print(
            "Nothing keeps Jobs from starting: no webhook of a Kueue, all Topologies exist,"
            " nodes match quotas."
        )
    else:
        console.print("Nothing that may be read keeps Jobs from starting.")
    if found.not_in_force:
        console.print("These policies are not in force:", style="bold")
        for problem in found.not_in_force:
            console.print(f"  ✗ {problem}", style="red")
    if found.skipped:
        names = ", ".join(found.skipped)
        console.print(f"  ! not checked, because you may not list them: {names}", style="yellow")
    # A cluster that has a Topology needs no proposal for another one.
    if not any(view.source.startswith("Topology ") for view in found.views):
        console.print()
        console.print("To use this hierarchy, apply it and name it in ResourceFlavor.spec.topologyName:")
        console.print(f"\n{yaml.safe_dump(_manifest(found.views[0].hierarchy), sort_keys=False)}", end="")


def _print_view(console: Console, view: ClusterView) -> None:
    hierarchy = view.hierarchy
    console.print()
    console.print(
        f"{view.source}: {hierarchy.complete_nodes} of {hierarchy.nodes} nodes carry every level",
        style="bold",
    )
    table = make_table(
        "LEVEL", "DOMAINS", "NODES IN EACH", "NODES WITHOUT", right=["DOMAINS", "NODES WITHOUT"]
    )
    for depth, level in enumerate(hierarchy.levels):
        few, many = level.fewest_nodes, level.most_nodes
        # Show uneven domains clearly: a gang may not fit into the smaller ones although the total suffices.
        size = str(few) if few == many else f"{few} to {many}"
        table.add_row("  " * depth + level.key, str(level.domains), size, str(len(level.lacking)))
    print_table(console, table)
    for problem in hierarchy.problems:
        console.print(f"  ! {problem}", style="yellow")


def _manifest(hierarchy: DomainHierarchy) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": level.key} for level in hierarchy.levels]},
    }
