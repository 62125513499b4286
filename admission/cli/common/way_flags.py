"""The flags that say where the controller is, and with which token it is asked.

Apart from what follows them (`admission.cli.page.reaching`), which takes an HTTP client: most commands that
have the flags are run without.
"""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from admission.cli.common.arguments import existing_file
from admission.cli.common.errors import WrongUsageError
from admission.controller.runtime.identity import DEFAULT_NAMESPACE


def add_way(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the controller is, and with which token it is asked."""
    parser.add_argument(
        "--url", metavar="URL", help="the controller's port http (default: by kubectl port-forward)"
    )
    parser.add_argument(
        "--ca", type=existing_file, metavar="FILE", help="PEM authority of the --url's certificate"
    )
    parser.add_argument(
        "--token-file",
        type=existing_file,
        metavar="FILE",
        help="a token of the cluster, for kubeconfigs with a client certificate (default: the kubeconfig's)",
    )
    parser.add_argument(
        "--controller-namespace",
        metavar="NS",
        default=DEFAULT_NAMESPACE,
        help="where the controller runs (default: %(default)s)",
    )


def check_way(arguments: argparse.Namespace) -> None:
    """Raise WrongUsageError for flags that contradict each other."""
    if arguments.url is not None and urlsplit(arguments.url).scheme not in ("http", "https"):
        raise WrongUsageError(f"--url {arguments.url} must begin with http:// or https://")
    if arguments.ca is not None and arguments.url is None:
        raise WrongUsageError("--ca needs the --url whose certificate it verifies")
