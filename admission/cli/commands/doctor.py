"""`berth doctor`: what a cluster's nodes say about its topology, and what would get in Berth's way.

Reads the API server only and changes nothing. Looked at are the Topology objects that exist, else the label
preset that fits most nodes; what it would take to use it is printed as a manifest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml
from rich.console import Console

from admission.cli.commands.doctor_checks import flavor_problems, leftover_webhooks
from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.views.tables import make_console, make_table, print_table
from admission.placement.topology.hierarchy import Hierarchy, inspect
from api.keys import HOSTNAME
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import NODES, TOPOLOGIES
from api.node import NodeInfo, to_node
from api.objects import NodeObject, TopologyObject
from api.specs import to_topology
from api.topology_presets import PRESETS, find_preset, preset_levels

# What every node offers; whatever else has a domain in its name is a device.
_NOT_DEVICES = ("hugepages-", "attachable-volumes-")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "doctor",
        help_line="what a cluster's nodes say about its topology, and what is in the way",
        description=(
            "Inspect a cluster: the hierarchy that its node labels tell, nodes that lack a level, labels\n"
            "that contradict themselves, webhooks that a Kueue left behind, and a Topology to apply.\n"
            "Reads the API server only. Exit code 1 where something is found that keeps Jobs from starting."
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
        help="look at nodes without devices too (default: only where no node has any)",
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


# --- what is found ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One list of levels, where it comes from, and what the nodes make of it."""

    source: str
    hierarchy: Hierarchy


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that was looked at. `obstacles` keep Jobs from starting; a view's problems only narrow it."""

    nodes: int
    ready: int
    devices: dict[str, int]
    views: tuple[ClusterView, ...]
    obstacles: tuple[str, ...]
    unreadable: tuple[str, ...]


async def _doctor(arguments: argparse.Namespace) -> int:
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        nodes, unreadable = await _read_nodes(client)
        views = _views(arguments, _with_devices(nodes, arguments.all_nodes), await _topologies(client))
        obstacles = [*await leftover_webhooks(client), *await flavor_problems(client)]
    found = Diagnosis(
        nodes=len(nodes),
        ready=sum(node.is_ready for node in nodes),
        devices=_devices(nodes),
        views=views,
        obstacles=tuple(obstacles),
        unreadable=tuple(unreadable),
    )
    _print(found, arguments.output)
    return ExitCode.DOES_NOT_HOLD if found.obstacles else ExitCode.DONE


async def _read_nodes(client: KubeClient) -> tuple[list[NodeInfo], list[str]]:
    listed = await client.list(NODES, type_=NodeObject)
    # One node that cannot be read is told; the others are what the answer is about.
    nodes, problems = [], [str(one) for one in listed.unreadable]
    for one in listed.items:
        try:
            nodes.append(to_node(one))
        except ValueError as error:
            problems.append(f"Node {one.metadata.name}: {error}")
    return nodes, problems


async def _topologies(client: KubeClient) -> list[tuple[str, tuple[str, ...]]]:
    try:
        listed = await client.list(TOPOLOGIES, type_=TopologyObject)
    # Without Kueue's kinds there are no Topologies, and the nodes can be looked at all the same.
    except NotFound:
        return []
    read = (to_topology(one) for one in sorted(listed.items, key=lambda one: one.metadata.name))
    return [(f"Topology {topology.name}", topology.levels) for topology in read]


def _with_devices(nodes: list[NodeInfo], all_nodes: bool) -> list[NodeInfo]:
    # Control planes and CPU nodes lack rack labels for good reason, and would drown the
    # nodes that should not.
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
    """Return what was asked for; else the Topologies that exist; else the preset that fits most nodes."""
    if arguments.levels:
        chosen = [("the levels given", tuple(key.strip() for key in arguments.levels.split(",")))]
        if not all(chosen[0][1]):
            raise WrongUsageError(f"--levels {arguments.levels!r} holds an empty key; part keys by one comma")
    elif arguments.preset:
        chosen = [_preset(arguments.preset, nodes)]
    else:
        # What is in use is worth more than what would suit.
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
    """Return the preset whose levels most nodes carry, of equals the one with more levels, then the first."""
    best: tuple[tuple[int, int], list[tuple[str, tuple[str, ...]]]] = ((0, 0), [])
    for preset in PRESETS:
        levels = preset_levels(preset, (node.labels for node in nodes))
        fit = (inspect(nodes, levels).complete_nodes, len(levels)) if levels else (0, 0)
        if fit > best[0]:
            best = fit, [(f"preset {preset.name} ({preset.source})", levels)]
    return best[1] or [("no preset fits; hosts alone", (HOSTNAME,))]


# --- what is shown ---------------------------------------------------------------------------------------


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
        console.print("In the way:", style="bold")
        for obstacle in found.obstacles:
            console.print(f"  ✗ {obstacle}", style="red")
    else:
        console.print("Nothing is in the way: no webhook of a Kueue, every flavor has its Topology.")
    # Who has one already needs no proposal for another.
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
        # Uneven domains show at a glance: they are where gangs do not fit though the sum would do.
        size = str(few) if few == many else f"{few} to {many}"
        table.add_row("  " * depth + level.key, str(level.domains), size, str(len(level.lacking)))
    print_table(console, table)
    for problem in hierarchy.problems:
        console.print(f"  ! {problem}", style="yellow")


def _manifest(hierarchy: Hierarchy) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": level.key} for level in hierarchy.levels]},
    }
