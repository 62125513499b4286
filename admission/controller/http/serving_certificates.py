"""The certificates of the TLS ports: self-issued and shared through a Secret, or read from files.

All replicas serve the same certificate, so a client that trusts one trusts all. The first replica to start
writes the Secret and the others read it. Each checks several times a day whether a renewal is due. If the
Secret may not be read or written, the controller starts all the same: the certificate then exists only in
this process, and no client is configured to trust it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from api.http.certificates import (
    Certificates,
    KeyPair,
    ServingTls,
    certificates_of_secret,
    key_pair_of_files,
    names_of,
    renewed,
)
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound
from api.objects.common import Meta

log = Log("berth.certificates")

SECRET = "berth-certificates"
# The Service in front of the controllers, in their namespace. The certificate is issued for its names.
SERVICE = "berth-controller"

# A certificate is renewed months before it expires, so a rare check is enough.
LOOK_SECONDS = 6 * 3600.0
# cert-manager writes a Secret, and the kubelet updates the file up to a minute later.
FILE_LOOK_SECONDS = 30.0
# Replicas that start together race for the Secret. Each round settles it for one of them.
_MOST_TRIES = 10


class CertificateSource(Protocol):
    """Provides the certificates of the TLS ports."""

    @property
    def trusted(self) -> bytes | None:
        """Return the PEM bundle that clients should trust; None if others publish it or it is not shared."""

    async def open(self) -> None:
        """Get the certificate."""

    def serving_tls(self) -> ServingTls:
        """Return TLS settings for one more port. They are kept up to date while run() runs."""

    async def run(self) -> None:
        """Keep all TLS settings that were returned up to date, until cancelled."""


class _Served:
    """The TLS settings of all ports, which serve one certificate."""

    def __init__(self) -> None:
        self._ports: list[ServingTls] = []
        self.pair: KeyPair | None = None

    def add(self) -> ServingTls:
        assert self.pair is not None, "open() comes first"
        port = ServingTls(self.pair)
        self._ports.append(port)
        return port

    def load(self, pair: KeyPair) -> None:
        """Serve the pair on all ports. Raises ValueError if it is unusable, and serves the former one on."""
        if pair == self.pair:
            return
        # Tried on its own first: an unusable pair must not reach some of the ports.
        ServingTls(pair)
        for port in self._ports:
            port.load(pair)
        self.pair = pair


class FileCertificates:
    """A certificate that others issue and renew, as two PEM files, such as a Secret of cert-manager."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._served = _Served()

    @property
    def trusted(self) -> bytes | None:
        """Return None: the issuer also publishes its authority (as cert-manager's CA injector does)."""
        return None

    async def open(self) -> None:
        """Read the files. Raises OSError, and ValueError if certificate and key do not match."""
        self._served.load(key_pair_of_files(*self._files))

    def serving_tls(self) -> ServingTls:
        """Return TLS settings for one more port."""
        return self._served.add()

    async def run(self) -> None:
        """Read the files regularly. An unusable pair is logged, and the former one is served on."""
        complained = ""
        while True:
            await asyncio.sleep(FILE_LOOK_SECONDS)
            complained = self.look(complained)

    def look(self, complained: str = "") -> str:
        """Read the files. Return what is wrong with them, which is logged unless it equals `complained`."""
        try:
            self._served.load(key_pair_of_files(*self._files))
        except (OSError, ValueError) as error:
            # Logged once, and again when the error changes.
            if str(error) != complained:
                log.warning("certificate-not-renewed", error=error)
            return str(error)
        return ""


class _Secret(msgspec.Struct):
    metadata: Meta
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """What the Secret holds now. `version` is empty if there is no Secret."""

    certificates: Certificates | None
    version: str = ""


class OwnCertificates:
    """A self-issued certificate, kept in a Secret of `namespace`.

    With `may_write` False the Secret is read but never written. `on_renewed` is called when the bundle
    to trust has changed.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        namespace: str,
        host: str = "127.0.0.1",
        may_write: bool = True,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._host = host
        self._may_write = may_write
        self._on_renewed = on_renewed
        self._served = _Served()
        self._certificates: Certificates | None = None
        self._is_shared = False

    @property
    def trusted(self) -> bytes | None:
        """Return the bundle in the Secret; None while the certificate exists only in this process."""
        return self._certificates.trusted if self._certificates is not None and self._is_shared else None

    async def open(self) -> None:
        """Take the Secret's certificate, or issue one. Raises KubeError if the server does not answer."""
        await self.look()

    def serving_tls(self) -> ServingTls:
        """Return TLS settings for one more port."""
        return self._served.add()

    async def run(self) -> None:
        """Check regularly whether a renewal is due."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except KubeError as error:
                log.warning("certificate-not-looked-at", error=error)

    async def look(self) -> None:
        """Renew Secret and ports where that is due. Raises KubeError."""
        before = self.trusted
        try:
            self._certificates = await self._agreed()
            self._is_shared = True
        # Without permission to share it, the certificate exists only in this replica, and no client is
        # configured to trust it.
        except (Forbidden, NotFound) as error:
            log.warning("certificate-not-shared", secret=f"{self._namespace}/{SECRET}", error=error)
            self._certificates = self._renewed(self._certificates)
            self._is_shared = False
        self._served.load(self._certificates.leaf)
        if self.trusted != before:
            self._on_renewed()

    async def _agreed(self) -> Certificates:
        """Return the Secret's certificates once they are valid, whichever replica wrote them."""
        for _ in range(_MOST_TRIES):
            found = await self._read()
            wanted = self._renewed(found.certificates)
            # They are valid as they are.
            if wanted is found.certificates:
                return wanted
            if not self._may_write:
                raise Forbidden("in observe mode no Secret is written")
            try:
                await self._write(wanted, found.version)
                return wanted
            # Another replica was first. Its certificates are most likely valid.
            except (AlreadyExists, Conflict):
                continue
        raise Conflict(f"the Secret {self._namespace}/{SECRET} changes faster than it can be written")

    def _renewed(self, there: Certificates | None) -> Certificates:
        return renewed(there, self._names(there), now=self._clock.now())

    def _names(self, there: Certificates | None) -> Sequence[str]:
        """Return the names that the certificate is for, including names that another replica has added."""
        service = f"{SERVICE}.{self._namespace}"
        names = [f"{service}.svc", f"{service}.svc.cluster.local", service, "localhost", "127.0.0.1", "::1"]
        if self._host not in ("0.0.0.0", "::", *names):
            names.append(self._host)
        known = names_of(there.leaf.certificate) if there is not None else set()
        return [*names, *sorted(known - set(names))]

    async def _read(self) -> _Found:
        try:
            raw = await self._client.get(resources.SECRETS, SECRET, self._namespace)
        except NotFound:
            return _Found(None)
        secret = msgspec.json.decode(raw, type=_Secret)
        return _Found(_certificates(secret.data or {}), secret.metadata.resource_version)

    async def _write(self, certificates: Certificates, version: str) -> None:
        body = msgspec.json.encode(_secret_object(self._namespace, certificates, version))
        # Without a version the Secret does not exist yet.
        if version:
            await self._client.replace(resources.SECRETS, SECRET, body, self._namespace)
        else:
            await self._client.create(resources.SECRETS, body, self._namespace)
        log.info("certificate-written", secret=f"{self._namespace}/{SECRET}")


def _certificates(data: dict[str, str]) -> Certificates | None:
    try:
        return certificates_of_secret(
            {key: base64.b64decode(value, validate=True) for key, value in data.items()}
        )
    # Another client wrote something else into the Secret: it is overwritten.
    except binascii.Error:
        return None


def _secret_object(namespace: str, certificates: Certificates, version: str) -> dict[str, object]:
    metadata = {"name": SECRET, "namespace": namespace}
    if version:
        metadata["resourceVersion"] = version
    data = {key: base64.b64encode(value).decode() for key, value in certificates.to_secret().items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/tls",
        "data": data,
    }
