"""The certificate of the side ports: given files, or one of our own that kube-apiserver is to trust."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from admission.controller.http.ca_injector import TrustPublisher
from admission.controller.http.serving_certificates import (
    CertificateSource,
    FileCertificates,
    OwnCertificates,
)
from admission.controller.runtime.clock import Clock
from admission.controller.settings import Options
from api.http.certificates import ServingTls
from api.kube.client import KubeClient
from api.wire.addressing import is_loopback


def is_secure(options: Options) -> bool:
    """Return whether /v1 and /metrics are served by TLS, and to users alone that RBAC allows."""
    return not options.insecure and not is_loopback(options.bind)


class PortCertificates:
    """Serves the certificate and keeps it valid. Call open() first, and run the tasks.

    There is none if no port needs TLS; then no Secret is read or written.
    """

    def __init__(self, client: KubeClient, clock: Clock, options: Options, *, namespace: str) -> None:
        self._trust = TrustPublisher(client, namespace=namespace, trusted=self._trusted)
        # In observe mode nothing is written, caBundles included.
        self._may_write = not options.observe
        self._source: CertificateSource | None = None
        # Certificate files are renewed by others. A self-issued certificate is for kube-apiserver only.
        if options.tls_certificate is not None and options.tls_key is not None:
            self._source = FileCertificates(Path(options.tls_certificate), Path(options.tls_key))
        elif max(options.visibility_port, options.webhook_port) >= 0 or is_secure(options):
            self._source = OwnCertificates(
                client,
                clock,
                namespace=namespace,
                host=options.bind,
                may_write=self._may_write,
                on_renewed=self._trust.publish,
            )

    def _trusted(self) -> bytes | None:
        return self._source.trusted if self._source is not None else None

    async def open(self) -> None:
        """Read or issue the certificate. Raises KubeError, OSError and ValueError."""
        if self._source is not None:
            await self._source.open()

    def serving_tls(self) -> ServingTls:
        """Return the TLS settings of a port."""
        assert self._source is not None, "ports with TLS have certificates"
        return self._source.serving_tls()

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that keep the certificate valid and trusted, by name."""
        if self._source is not None:
            yield "certificates", self._source.run()
            if isinstance(self._source, OwnCertificates) and self._may_write:
                yield "trust", self._trust.run()
