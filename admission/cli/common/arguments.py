"""The parser of command lines: one sentence for a mistake, and the types that several commands share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from admission.cli.common.errors import WrongUsageError

# What `add_subparsers` returns; argparse gives the class no public name.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# Cap what a typing error can ask for: a node is an object that this process keeps alive.
_MOST_NODES = 20_000
_MOST_GPUS_PER_NODE = 1_024
_FASTEST = 100_000.0
_MOST_PORT = 65_535


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises one sentence instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise WrongUsageError with argparse's own words and where to read on."""
        raise WrongUsageError(f"{message}; see {self.prog} --help")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWish:
    """So many simulated nodes with so many GPUs each."""

    count: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """All GPUs together."""
        return self.count * self.gpus_per_node

    def __str__(self) -> str:
        return f"{self.count}x{self.gpus_per_node}"


# What the public Philly trace fills: 1,106 of these 1,104 GPUs are asked for on average.
_TRACE_NODES = NodesWish(count=138, gpus_per_node=8)


def add_command(
    subparsers: Subparsers,
    name: str,
    *,
    help_line: str,
    description: str,
    examples: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a command with its help text; `examples` are printed as they stand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help_line,
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names an existing cluster."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster (default: $KUBECONFIG, in-cluster, ~/.kube/config)",
    )


def add_nodes(parser: argparse.ArgumentParser, default: NodesWish) -> None:
    """Add the flag that says how many nodes are simulated."""
    parser.add_argument(
        "--nodes",
        type=nodes_wish,
        default=default,
        metavar="NODESxGPUS",
        help="simulated nodes (default: %(default)s)",
    )


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a trace, how much of it counts, and the nodes that it runs on."""
    parser.add_argument("--jobs", type=existing_file, required=True, metavar="FILE", help="the trace")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N Jobs (default: all)")
    add_nodes(parser, _TRACE_NODES)


def add_manifests(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names manifests, for `manifest_files.read_documents`."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="MANIFESTS",
        help="file or directory of YAML or JSON, - for stdin; may be given several times",
    )


def nodes_wish(text: str) -> NodesWish:
    """Read "138x8": 138 nodes with 8 GPUs each."""
    match = re.fullmatch(r"([0-9]{1,9})[x×]([0-9]{1,9})", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NODESxGPUS such as 16x8")
    count, gpus = int(match[1]), int(match[2])
    if not (1 <= count <= _MOST_NODES and 0 <= gpus <= _MOST_GPUS_PER_NODE):
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range: 1 to {_MOST_NODES} nodes with 0 to {_MOST_GPUS_PER_NODE} GPUs each"
        )
    return NodesWish(count=count, gpus_per_node=gpus)


def speed(text: str) -> float:
    """Read how many simulated seconds pass in a real one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: a number above 0, at most {_FASTEST:,.0f}")
    return value


def positive_number(text: str) -> float:
    """Read a number above 0."""
    value = _number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def hours_between_faults(text: str) -> float:
    """Read a mean time between faults: what breaks more often than hourly finishes nothing, for ever."""
    value = _number(text)
    if value is None or value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours, 1 or more")
    return value


def seconds(text: str) -> float:
    """Read a number of seconds, 0 or more."""
    value = _number(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def port(text: str) -> int:
    """Read a TCP port; 0 is any free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 (any free one) to {_MOST_PORT}")
    return int(text)


def existing_file(text: str) -> Path:
    """Read the path of a file that must be there."""
    path = Path(text)
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "does not exist"
        raise argparse.ArgumentTypeError(f"{text} {what}")
    return path
