"""A connection to Redis by TLS, which reads its files again and trusts no authority but the named ones.

The library reads the files once, and trusts the system's authorities beside the ones that it is given: any of
those could give the address of Redis a certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from redis.asyncio import SSLConnection
from redis.asyncio.connection import RedisSSLContext


class TlsConnection(SSLConnection):
    """A connection that reads the files of its TLS whenever it connects."""

    _tls_files: tuple[bytes, ...] = ()

    async def _connect(self) -> None:
        # Before the library's time for connecting begins, of which it would leave little.
        self._read_tls_files()
        await super()._connect()  # type: ignore[no-untyped-call]

    def _read_tls_files(self) -> None:
        tls = self.ssl_context
        files = (tls.ca_certs, tls.certfile, tls.keyfile)
        read = tuple(Path(file).read_bytes() for file in files if file is not None)
        # Not each time: a new context takes 40 ms, and a lost Redis is probed often.
        if tls.context is None or read != self._tls_files:
            self._tls_files, tls.context = read, _new_context(tls)


def _new_context(tls: RedisSSLContext) -> ssl.SSLContext:
    """Return a context with these options, as the library makes it, that trusts the named authorities alone.

    Where none is named, it trusts those of the system. Source: redis-py 8, `RedisSSLContext.get`.
    """
    context = ssl.create_default_context(cafile=tls.ca_certs, capath=tls.ca_path, cadata=tls.ca_data)
    context.check_hostname = tls.check_hostname
    context.verify_mode = tls.cert_reqs
    for flag in tls.include_verify_flags or ():
        context.verify_flags |= flag
    for flag in tls.exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if tls.certfile is not None:
        context.load_cert_chain(tls.certfile, tls.keyfile, tls.password)
    if tls.min_version is not None:
        context.minimum_version = tls.min_version
    if tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    return context
