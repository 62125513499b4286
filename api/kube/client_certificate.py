"""The client certificate of a user, loaded into a TLS context."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from api.kube.errors import InvalidKubeconfig


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, owner: str) -> None:
    """Load the PEM certificate and key of `owner`. Raises InvalidKubeconfig that names it."""
    # ssl loads a certificate chain only from files; this directory is private and is deleted immediately.
    with tempfile.TemporaryDirectory(prefix="berth-") as directory:
        chain = Path(directory, "client.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(chain)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidKubeconfig(f"the client certificate of {owner} cannot be used: {error}") from error
