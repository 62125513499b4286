"""TLS to the API server: the context of new connections, made again when a file that it is from has changed.

A cluster renews its authority, and a tool or the kubelet renews client certificates, while a process runs.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from api.kube.client_certificate import load_client_certificate
from api.kube.errors import KubeError

log = logging.getLogger("berth.kube.tls")

# What changes when a file is written or replaced: modification time, inode and size. None: there is none.
_Version = tuple[int, int, int] | None


class ClientTls:
    """Gives the context. `make` builds one from `files`, and raises KubeError where they cannot be used.

    Files that cannot be used are reported in the log, and the former context stays in use.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[Path] = ()) -> None:
        self._make = make
        self._files = files
        # Before they are read: what changes meanwhile is read again.
        self._versions = self._present()
        self._shown: tuple[bytes, bytes, str] | None = None
        self._context = make()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next request. Connections are kept apart by their context."""
        versions = self._present()
        if versions != self._versions:
            self._versions = versions
            self._renew()
        return self._context

    def show(self, certificate: bytes, key: bytes, owner: str) -> None:
        """Show this client certificate (PEM) of `owner` from now on, as an exec plugin gives it.

        Raises InvalidKubeconfig if it cannot be used.
        """
        given = (certificate, key, owner)
        if given == self._shown:
            return
        context = self._make()
        load_client_certificate(context, *given)
        self._context, self._shown = context, given

    def _present(self) -> tuple[_Version, ...]:
        return tuple(map(_version, self._files))

    def _renew(self) -> None:
        try:
            context = self._make()
            if self._shown is not None:
                load_client_certificate(context, *self._shown)
        # A half-written file, or a certificate without its key yet: the next change is read again.
        except KubeError as error:
            log.warning("tls_files_not_taken error=%s", error)
            return
        self._context = context
        log.info("tls_files_renewed files=%s", ",".join(map(str, self._files)))


def _version(file: Path) -> _Version:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
