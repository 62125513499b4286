"""`berth controller`: flags, options and exit of the controller."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path

from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import announce, serve
from admission.cli.common.serving import (
    add_certificate,
    add_client_ca,
    add_scheduler_names,
    check_certificate,
    check_client_ca,
)
from admission.cli.common.settings_file import read_config
from admission.cli.common.store_flags import (
    add_replication,
    add_store_access,
    to_replication,
    to_store_access,
    to_store_keys,
)
from admission.controller.app import run_controller
from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.logs import LogSettings, configure
from admission.controller.settings import KUBE_SCHEDULER, Options

FAILPOINT_VARIABLE = "BERTH_FAILPOINT"
_PORTS = (
    ("http", "/v1: queues and Workloads as JSON"),
    ("metrics", "/metrics"),
    ("extender", "/filter and /prioritize for kube-scheduler"),
    ("visibility", "Kueue's visibility API, by TLS"),
    ("webhook", "/mutate and /validate for kube-apiserver, by TLS"),
)


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "controller",
        help_line="admit the Jobs of a cluster",
        description=(
            "Admit suspended Jobs and Workloads of a cluster. Several replicas may run: one leads. When all\n"
            "ports listen, one JSON line with the URLs is printed; logs go to stderr."
        ),
        examples=(
            "  berth controller --kubeconfig ~/.kube/config\n"
            "  berth controller --kubeconfig F --redis redis://redis:6379/0 --config config.yaml\n"
            "  berth controller --kubeconfig F --observe    # decides, logs and measures; writes nothing"
        ),
        run=_run,
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then in-cluster, then ~/.kube/config"
    )
    _add_store_flags(parser)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="Kueue's Configuration, Berth's ControllerConfig, a topology SchedulerConfig; or a folder of"
        " such files that end in .yaml",
    )
    parser.add_argument(
        "--namespace", metavar="NS", help="of leases and secrets (default: own namespace or berth-system)"
    )
    _add_port_flags(parser)
    parser.add_argument("--observe", action="store_true", help="decide, log and measure; write nothing")
    parser.add_argument("--require-store", action="store_true", help="admit nothing while the store is lost")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--enable-failpoints", action="store_true", help=f"read ${FAILPOINT_VARIABLE}, for crash tests"
    )


def _add_store_flags(parser: argparse.ArgumentParser) -> None:
    store = parser.add_mutually_exclusive_group()
    store.add_argument(
        "--redis",
        metavar="URL",
        help="URL of the shared store: redis://, redis+sentinel://, redis+cluster:// (rediss: TLS) or unix://",
    )
    store.add_argument(
        "--embedded-store",
        action="store_true",
        help="start a Redis for this process only (default without --redis)",
    )
    parser.add_argument(
        "--store-directory", metavar="DIR", help="where the embedded store keeps its data (default: not kept)"
    )
    add_store_access(parser)
    add_replication(parser)


def _add_port_flags(parser: argparse.ArgumentParser) -> None:
    # Help texts come from the table of ports, defaults from the fields of Options.
    usual = {one.name: one.default for one in fields(Options)}
    parser.add_argument("--bind", metavar="ADDRESS", default=usual["bind"], help="default %(default)s")
    for name, what in _PORTS:
        parser.add_argument(
            f"--{name}-port",
            metavar="N",
            type=_port,
            default=usual[f"{name}_port"],
            help=f"{what}; 0: any free port, -1: off (default %(default)s)",
        )
    add_certificate(
        parser,
        "PEM certificate of the TLS ports, also for the extender (default: Berth's own for the former)",
    )
    add_client_ca(parser)
    add_scheduler_names(parser)
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="serve /v1 and /metrics without TLS and to all, on other addresses than loopback, too",
    )


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -2
    if not -1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: expected -1 to 65535")
    return port


def _run(arguments: argparse.Namespace) -> int:
    options = to_options(arguments)
    configure(level=options.logs.level, as_json=options.logs.as_json)
    serve(lambda stop: run_controller(options, on_listening=announce, stop=stop))
    return ExitCode.DONE


def to_options(arguments: argparse.Namespace) -> Options:
    """Return the controller options for these flags. Raises WrongUsageError."""
    check_certificate(arguments.tls_certificate, arguments.tls_key)
    check_client_ca(arguments.client_ca, arguments.tls_certificate)
    # Require the flag: a variable left over in a shell must not crash a production controller.
    failpoint = os.environ.get(FAILPOINT_VARIABLE) if arguments.enable_failpoints else None
    try:
        # Validate the name now: a failpoint with an unknown name would never be reached.
        Failpoint(failpoint)
    except ValueError as error:
        raise WrongUsageError(str(error)) from error
    return Options(
        kubeconfig=arguments.kubeconfig,
        namespace=arguments.namespace,
        redis_url=arguments.redis,
        store_access=to_store_access(arguments),
        store_replication=to_replication(arguments),
        store_keys=to_store_keys(arguments),
        cluster_id=arguments.cluster_id,
        store_directory=arguments.store_directory,
        bind=arguments.bind,
        http_port=arguments.http_port,
        metrics_port=arguments.metrics_port,
        extender_port=arguments.extender_port,
        visibility_port=arguments.visibility_port,
        webhook_port=arguments.webhook_port,
        tls_certificate=arguments.tls_certificate,
        tls_key=arguments.tls_key,
        client_ca=arguments.client_ca,
        client_names=tuple(arguments.client_name or (KUBE_SCHEDULER,)),
        scheduler_names=tuple(arguments.scheduler_name),
        insecure=arguments.insecure,
        observe=arguments.observe,
        require_store=arguments.require_store,
        failpoint=failpoint,
        logs=LogSettings(level=arguments.log_level, as_json=arguments.log_format == "json"),
        config=read_config(arguments.config),
        config_file=str(arguments.config) if arguments.config is not None else None,
    )
