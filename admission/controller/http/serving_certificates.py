"""The certificates of the TLS ports: made here and shared through a Secret, or read from files.

All replicas serve the same certificate, so whoever trusts one trusts all: the first to start writes the
Secret, the others read it, and each looks again a few times a day whether something is due. A Secret that may
not be read or written is no reason not to start: the certificate then lives in this process alone, and nobody
is told to trust it.
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
from api.objects import Meta

log = Log("berth.certificates")

SECRET = "berth-certificates"
# The Service before the controllers, in their namespace; its names are the certificate's.
SERVICE = "berth-controller"

# Certificates are renewed months before they end, so a look is needed seldom.
LOOK_SECONDS = 6 * 3600.0
# cert-manager writes a Secret, the kubelet a file up to a minute later.
FILE_LOOK_SECONDS = 30.0
# Replicas that start together meet at the Secret; each meeting settles it for one of them.
_MOST_TRIES = 10


class CertificateSource(Protocol):
    """Where the certificates of the TLS ports come from."""

    @property
    def trusted(self) -> bytes | None:
        """The PEM bundle that clients are to trust; None where others see to that, or nobody can."""

    async def open(self) -> None:
        """Get the certificate."""

    def serving_tls(self) -> ServingTls:
        """Return TLS for one more port; it is kept up to date while run() runs."""

    async def run(self) -> None:
        """Keep all TLS given out up to date, until cancelled."""


class _Served:
    """The TLS of all ports, which serve one certificate."""

    def __init__(self) -> None:
        self._ports: list[ServingTls] = []
        self.pair: KeyPair | None = None

    def add(self) -> ServingTls:
        assert self.pair is not None, "open() comes first"
        port = ServingTls(self.pair)
        self._ports.append(port)
        return port

    def load(self, pair: KeyPair) -> None:
        """Serve the pair on all ports. Raises ValueError, and serves on, where it cannot be served."""
        if pair == self.pair:
            return
        # Tried on its own first: a pair that cannot be served must not reach some of the ports.
        ServingTls(pair)
        for port in self._ports:
            port.load(pair)
        self.pair = pair


class FileCertificates:
    """A certificate that others issue and renew, as two PEM files: a mounted Secret of cert-manager."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._served = _Served()

    @property
    def trusted(self) -> bytes | None:
        """None: who issues the certificate also says whom to trust (cert-manager's CA injector)."""
        return None

    async def open(self) -> None:
        """Read the files. Raises OSError, and ValueError where certificate and key do not fit."""
        self._served.load(key_pair_of_files(*self._files))

    def serving_tls(self) -> ServingTls:
        """Return TLS for one more port."""
        return self._served.add()

    async def run(self) -> None:
        """Read the files again and again; what cannot be served is logged, and the former served on."""
        complained = ""
        while True:
            await asyncio.sleep(FILE_LOOK_SECONDS)
            complained = self.look(complained)

    def look(self, complained: str = "") -> str:
        """Read the files; return what is wrong with them, logged unless it is what was complained of."""
        try:
            self._served.load(key_pair_of_files(*self._files))
        except (OSError, ValueError) as error:
            # Once, and again when the fault is another.
            if str(error) != complained:
                log.warning("certificate-not-renewed", error=error)
            return str(error)
        return ""


class _Secret(msgspec.Struct):
    metadata: Meta
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """What the Secret holds now; `version` is empty where there is no Secret."""

    certificates: Certificates | None
    version: str = ""


class OwnCertificates:
    """A certificate of our own, kept in a Secret of `namespace`.

    `may_write` False reads the Secret and writes none. `on_renewed` is called when the bundle to trust has
    changed.
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
        """The bundle in the Secret; None while the certificate is this process's alone."""
        return self._certificates.trusted if self._certificates is not None and self._is_shared else None

    async def open(self) -> None:
        """Take the Secret's certificate, or make one. Raises KubeError where the server does not answer."""
        await self.look()

    def serving_tls(self) -> ServingTls:
        """Return TLS for one more port."""
        return self._served.add()

    async def run(self) -> None:
        """Look now and then whether something is due."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except KubeError as error:
                log.warning("certificate-not-looked-at", error=error)

    async def look(self) -> None:
        """Bring Secret and ports to what is good now. Raises KubeError."""
        before = self.trusted
        try:
            self._certificates = await self._agreed()
            self._is_shared = True
        # Without the right to share it the certificate is this replica's alone, and nobody is
        # told to trust it.
        except (Forbidden, NotFound) as error:
            log.warning("certificate-not-shared", secret=f"{self._namespace}/{SECRET}", error=error)
            self._certificates = self._renewed(self._certificates)
            self._is_shared = False
        self._served.load(self._certificates.leaf)
        if self.trusted != before:
            self._on_renewed()

    async def _agreed(self) -> Certificates:
        """Return what the Secret holds once it is good, whoever of the replicas wrote it."""
        for _ in range(_MOST_TRIES):
            found = await self._read()
            wanted = self._renewed(found.certificates)
            # Good as it is, whoever wrote it.
            if wanted is found.certificates:
                return wanted
            if not self._may_write:
                raise Forbidden("only observing, so no Secret is written")
            try:
                await self._write(wanted, found.version)
                return wanted
            # Another replica was first; what it wrote is most likely good.
            except (AlreadyExists, Conflict):
                continue
        raise Conflict(f"the Secret {self._namespace}/{SECRET} changes faster than it can be written")

    def _renewed(self, there: Certificates | None) -> Certificates:
        return renewed(there, self._names(there), now=self._clock.now())

    def _names(self, there: Certificates | None) -> Sequence[str]:
        """Return what the certificate is for. Names that another replica's host added are kept."""
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
        # A Secret without a version has yet to be made.
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
    # Somebody wrote something else into it: it is written anew.
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
