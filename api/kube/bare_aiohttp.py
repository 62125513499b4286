"""aiohttp, imported without the certificate authorities that the operating system trusts.

aiohttp makes two default TLS contexts while it is imported, and each reads all of these authorities: a third
of the CPU time of a short command. Berth uses neither of them. Each of its connections has a context of its
own, which reads the authorities itself where it needs them; a connection without one would trust no server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# OpenSSL reads the authorities from these, a file and a folder.
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@contextmanager
def _without_authorities() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with _without_authorities():
    import aiohttp as aiohttp
