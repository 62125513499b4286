"""`berth node-agent`: writes the labels of one GPU node and the GPU ids of its pods."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from admission.cli.commands.version import version
from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig, port, positive_number
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import announce, serve
from admission.controller.runtime.logs import configure
from admission.node_agent.shell.agent import AgentOptions, run_agent

_NODE_VARIABLE = "NODE_NAME"
_DEFAULTS = AgentOptions(node="", version="")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "node-agent",
        help_line="label this node by its GPUs, and its pods by the GPUs that they have",
        description=(
            "Read the GPUs of this machine with nvidia-smi, their NUMA nodes from /sys, and the devices\n"
            "of pods from the kubelet. Write the labels of the node, and the annotation berth.dev/gpu-ids\n"
            "of its pods. It runs on each GPU node (deploy/node-agent). When it listens, one JSON line with\n"
            "the URL of its health port is printed; logs go to stderr."
        ),
        examples=(
            "  berth node-agent --node gpu-17\n"
            "  berth node-agent --node gpu-17 --nvidia-smi /usr/local/nvidia/bin/nvidia-smi"
        ),
        run=_run,
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--node",
        metavar="NAME",
        default=os.environ.get(_NODE_VARIABLE, ""),
        help=f"the name of this node in the cluster (default: ${_NODE_VARIABLE})",
    )
    _add_sources(parser)
    parser.add_argument("--bind", metavar="ADDRESS", default="127.0.0.1", help="default %(default)s")
    parser.add_argument(
        "--port",
        metavar="N",
        type=port,
        default=_DEFAULTS.port,
        help="/healthz and /readyz; 0: any free port (default %(default)s)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nvidia-smi",
        metavar="PROGRAM",
        default=_DEFAULTS.nvidia_smi,
        help="name or path (default %(default)s)",
    )
    parser.add_argument(
        "--kubelet-socket",
        metavar="PATH",
        default=_DEFAULTS.kubelet_socket,
        help="pod resources of the kubelet (default %(default)s)",
    )
    parser.add_argument(
        "--sys",
        type=Path,
        metavar="FOLDER",
        default=_DEFAULTS.sys_root,
        help="where the host's /sys is (default %(default)s)",
    )
    for name, what, default in (
        ("--devices-seconds", "the GPUs are read", _DEFAULTS.devices_seconds),
        ("--pods-seconds", "the kubelet is asked, beside each change of a pod", _DEFAULTS.pods_seconds),
    ):
        parser.add_argument(
            name,
            type=positive_number,
            metavar="SECONDS",
            default=default,
            help=f"how often {what} (default %(default)g)",
        )


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.node:
        raise WrongUsageError(f"the name of this node is missing; give --node or set {_NODE_VARIABLE}")
    configure(level=arguments.log_level, as_json=arguments.log_format == "json")
    options = AgentOptions(
        node=arguments.node,
        version=version(),
        kubeconfig=arguments.kubeconfig,
        nvidia_smi=arguments.nvidia_smi,
        kubelet_socket=arguments.kubelet_socket,
        sys_root=arguments.sys,
        devices_seconds=arguments.devices_seconds,
        pods_seconds=arguments.pods_seconds,
        bind=arguments.bind,
        port=arguments.port,
    )
    serve(lambda stop: run_agent(options, on_listening=announce, stop=stop))
    return ExitCode.DONE
