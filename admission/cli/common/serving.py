"""The flags of commands that serve TLS: a certificate, and the authority of client certificates."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

from admission.cli.common.errors import WrongUsageError
from admission.controller.settings import KUBE_SCHEDULER
from api.http.certificates import ServingTls, key_pair_of_files


def add_certificate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags for a certificate that the user provides. `what` is the help text of the certificate."""
    parser.add_argument("--tls-certificate", metavar="FILE", help=what)
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")


def add_client_ca(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the certificates of the extender's clients."""
    parser.add_argument(
        "--client-ca",
        metavar="FILE",
        help="PEM authority of client certificates, which the extender then requires (with TLS only)",
    )
    parser.add_argument(
        "--client-name",
        action="append",
        metavar="NAME",
        help=f"common name in such a certificate; may be repeated (default {KUBE_SCHEDULER})",
    )


def add_scheduler_names(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the pods that the extender serves."""
    parser.add_argument(
        "--scheduler-name",
        action="append",
        default=[],
        metavar="NAME",
        help="let the extender serve pods of this spec.schedulerName alone; may be repeated (default: all)",
    )


def check_client_ca(client_ca: str | None, certificate: str | None) -> None:
    """Raise WrongUsageError unless the file holds an authority, and TLS is served with it."""
    if client_ca is None:
        return
    if certificate is None:
        raise WrongUsageError("--client-ca needs --tls-certificate and --tls-key")
    try:
        ssl.create_default_context(cadata=Path(client_ca).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongUsageError(f"cannot read an authority from {client_ca}: {error}") from error


def check_certificate(certificate: str | None, key: str | None) -> None:
    """Raise WrongUsageError unless both files are given and match, or neither is given."""
    if (certificate is None) != (key is None):
        raise WrongUsageError("--tls-certificate and --tls-key go together; give both, or neither")
    if certificate is None or key is None:
        return
    try:
        # Load the pair now. Otherwise a mismatch would first appear as an error at each client.
        ServingTls(key_pair_of_files(Path(certificate), Path(key)))
    except (OSError, ValueError) as error:
        raise WrongUsageError(f"cannot serve {certificate} with {key}: {error}") from error
