"""`berth extender`: only /filter and /prioritize for kube-scheduler, without the rest of the controller."""

from __future__ import annotations

import argparse
from pathlib import Path

from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig, port
from admission.cli.common.errors import ExitCode
from admission.cli.common.running import announce, serve
from admission.cli.common.serving import (
    add_certificate,
    add_client_ca,
    add_scheduler_names,
    check_certificate,
    check_client_ca,
)
from admission.cli.common.settings_file import read_config
from admission.cli.common.store_flags import add_store_access, to_store_access, to_store_keys
from admission.controller.http.extender_profiles import extender_rules
from admission.controller.http.extender_server import ExtenderOptions, run_extender
from admission.controller.http.shared_fabrics import StoreOptions
from admission.controller.runtime.logs import configure
from admission.controller.settings import KUBE_SCHEDULER


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "extender",
        help_line="run only the scheduler extender for kube-scheduler",
        description=(
            "Answer kube-scheduler's /filter and /prioritize from watches of nodes and pods. It needs only\n"
            "permission to read those. The extender port of `berth controller` gives the same answers.\n"
            "When it listens, one JSON line with the URL is printed; logs go to stderr."
        ),
        examples=(
            "  berth extender --kubeconfig ~/.kube/config\n"
            "  berth extender --scheduler-name topology-aware-scheduler   # other pods pass\n"
            "  berth extender --bind 0.0.0.0 --tls-certificate tls.crt --tls-key tls.key --client-ca ca.crt\n"
            "  berth extender --redis redis://berth-redis:6379/0 --store-key signing-key --cluster-id UID"
        ),
        run=_run,
    )
    add_kubeconfig(parser)
    parser.add_argument("--bind", metavar="ADDRESS", default="127.0.0.1", help="default %(default)s")
    parser.add_argument(
        "--port",
        metavar="N",
        type=port,
        default=ExtenderOptions().port,
        help="0: any free port (default %(default)s)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="ControllerConfig of berth.dev/v1alpha1 with `extender`"
    )
    add_certificate(parser, "serve TLS with this PEM certificate, read again when it changes")
    add_client_ca(parser)
    add_scheduler_names(parser)
    parser.add_argument(
        "--redis", metavar="URL", help="Redis in which replicas agree on the fabric of each training job"
    )
    add_store_access(parser)
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")


def _run(arguments: argparse.Namespace) -> int:
    options = to_options(arguments)
    configure(level=arguments.log_level, as_json=arguments.log_format == "json")
    serve(lambda stop: run_extender(options, on_listening=announce, stop=stop))
    return ExitCode.DONE


def to_options(arguments: argparse.Namespace) -> ExtenderOptions:
    """Return the extender's options for these flags. Raises WrongUsageError."""
    check_certificate(arguments.tls_certificate, arguments.tls_key)
    check_client_ca(arguments.client_ca, arguments.tls_certificate)
    config = read_config(arguments.config).berth
    return ExtenderOptions(
        kubeconfig=arguments.kubeconfig,
        bind=arguments.bind,
        port=arguments.port,
        tls_certificate=arguments.tls_certificate,
        tls_key=arguments.tls_key,
        client_ca=arguments.client_ca,
        client_names=tuple(arguments.client_name or (KUBE_SCHEDULER,)),
        rules=extender_rules(config.extender, arguments.scheduler_name),
        config_file=str(arguments.config) if arguments.config is not None else None,
        store=_store(arguments, shard=config.shard),
    )


def _store(arguments: argparse.Namespace, *, shard: str) -> StoreOptions | None:
    # Checked without a Redis as well: its other flags are an error then.
    access, keys = to_store_access(arguments), to_store_keys(arguments)
    if arguments.redis is None:
        return None
    return StoreOptions(
        url=arguments.redis, access=access, keys=keys, cluster_id=arguments.cluster_id, shard=shard
    )
