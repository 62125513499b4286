"""The command line parser, which reports a mistake in one sentence, and shared argument types."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from admission.cli.common.errors import WrongUsageError
from api.parsing.decimals import finite_number

# What `add_subparsers` returns; argparse gives the class no public name.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# Limits against typing errors, such as more nodes than one process can simulate.
_MOST_NODES = 20_000
_MOST_GPUS_PER_NODE = 1_024
_FASTEST = 100_000.0
_MOST_PORT = 65_535


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises an error with one sentence instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise WrongUsageError with argparse's message and the command that prints the help."""
        raise WrongUsageError(f"{message}; see {self.prog} --help")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounts:
    """A number of simulated nodes, and the number of GPUs of each."""

    count: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all nodes together."""
        return self.count * self.gpus_per_node

    def __str__(self) -> str:
        return f"{self.count}x{self.gpus_per_node}"


# The public Philly trace fully loads these 1,104 GPUs: its mean demand is 1,106.
_TRACE_NODES = NodeCounts(count=138, gpus_per_node=8)


def add_command(
    subparsers: Subparsers,
    name: str,
    *,
    help_line: str,
    description: str,
    examples: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a command with its help text, and return its parser. `examples` are printed unchanged."""
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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a cluster, as kubectl has them."""
    add_kubeconfig(parser)
    parser.add_argument(
        "--context", metavar="NAME", help="the kubeconfig's context (default: its current one)"
    )


def add_scope(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags that say which namespaces are shown. `what` is the help text of -n."""
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="all namespaces (default: the context's, if it has one)",
    )
    scope.add_argument("-n", "--namespace", metavar="NS", help=what)


def add_nodes(parser: argparse.ArgumentParser, default: NodeCounts) -> None:
    """Add the flag for the number of simulated nodes and their GPUs."""
    parser.add_argument(
        "--nodes",
        type=node_counts,
        default=default,
        metavar="NODESxGPUS",
        help="simulated nodes (default: %(default)s)",
    )


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the flags for a trace, how many of its Jobs to use, and the nodes that they run on."""
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


def node_counts(text: str) -> NodeCounts:
    """Parse "138x8" as 138 nodes with 8 GPUs each. Raises ArgumentTypeError, also if out of range."""
    match = re.fullmatch(r"([0-9]{1,9})[x×]([0-9]{1,9})", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NODESxGPUS such as 16x8")
    count, gpus = int(match[1]), int(match[2])
    if not (1 <= count <= _MOST_NODES and 0 <= gpus <= _MOST_GPUS_PER_NODE):
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range: 1 to {_MOST_NODES} nodes with 0 to {_MOST_GPUS_PER_NODE} GPUs each"
        )
    return NodeCounts(count=count, gpus_per_node=gpus)


def speed(text: str) -> float:
    """Parse how many simulated seconds pass in one real second. Raises ArgumentTypeError."""
    what = f"a speed: expected a number above 0, at most {_FASTEST:,.0f}"
    return _checked(text, lambda value: 0 < value <= _FASTEST, what)


def positive_number(text: str) -> float:
    """Parse a finite number above 0. Raises ArgumentTypeError."""
    return _checked(text, lambda value: value > 0, "a number above 0")


def hours_between_faults(text: str) -> float:
    """Parse a mean time between faults, in hours. Raises ArgumentTypeError.

    The minimum is 1: with more frequent faults, a long Job would never finish.
    """
    return _checked(text, lambda value: value >= 1, "a number of hours, 1 or more")


def seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more. Raises ArgumentTypeError."""
    return _checked(text, lambda value: value >= 0, "a number of seconds, 0 or more")


def share(text: str) -> float:
    """Parse a share from 0 to 1. Raises ArgumentTypeError."""
    return _checked(text, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def _checked(text: str, is_valid: Callable[[float], bool], what: str) -> float:
    value = finite_number(text)
    if value is None or not is_valid(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def positive(text: str) -> int:
    """Parse a whole number of at least 1. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def port(text: str) -> int:
    """Parse a TCP port; 0 means any free port. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _MOST_PORT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port: expected 0 (any free port) to {_MOST_PORT}"
        )
    return int(text)


def file_or_folder(text: str) -> Path:
    """Parse the path of an existing file or folder. Raises ArgumentTypeError."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path


def existing_file(text: str) -> Path:
    """Parse the path of an existing file. Raises ArgumentTypeError."""
    path = Path(text)
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "does not exist"
        raise argparse.ArgumentTypeError(f"{text} {what}")
    return path
