"""Who we say we are: the Authorization header of every request, kept fresh.

Plain tokens never change. Token files do: the kubelet rewrites a service account's token well before it
expires, so the file is read anew each minute. Everything that needs a program or an identity provider (exec
plugins, OIDC, GCP) is left to kubernetes_asyncio, which is imported only then: it costs 0.6 s and 40 MB.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from api.kube.errors import InvalidKubeconfig, KubeError, Timeout

# How old a token may be before its file is read, or its plugin asked, again. client-go's value.
REFRESH_SECONDS = 60.0

# Caps how long an exec plugin or an identity provider may take.
PLUGIN_TIMEOUT_SECONDS = 60.0


class Credentials(Protocol):
    """A source of the Authorization header."""

    async def authorization(self) -> str | None:
        """Return the header's value, None for none. Raises KubeError where it cannot be had."""

    def invalidate(self) -> None:
        """Forget what is remembered: the server has refused it."""


class FixedCredentials:
    """A header that never changes, or none (client certificates, no user)."""

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    async def authorization(self) -> str | None:
        """Return the fixed value."""
        return self._value

    def invalidate(self) -> None:
        """Do nothing: there is no other value."""


class TokenFile:
    """A bearer token in a file that someone else keeps fresh."""

    def __init__(self, path: Path, origin: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._origin = origin
        self._clock = clock
        self._value = ""
        self._read_at = 0.0

    async def authorization(self) -> str | None:
        """Return the file's token, at most REFRESH_SECONDS old."""
        if not self._value or self._clock() - self._read_at >= REFRESH_SECONDS:
            self._value = f"Bearer {self._read()}"
            self._read_at = self._clock()
        return self._value

    def invalidate(self) -> None:
        """Read the file at the next request."""
        self._value = ""

    def _read(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidKubeconfig(
                f"the token file {self._path} of {self._origin} cannot be read: {error}"
            ) from error
        if not token:
            raise InvalidKubeconfig(
                f"the token file {self._path} of {self._origin} is empty; put a token into it"
            )
        return token


class LibraryCredentials:
    """Credentials that kubernetes_asyncio obtains: exec plugins, OIDC, GCP.

    `context` gets the client certificate that an exec plugin may answer with in place of a token.
    """

    def __init__(self, loader: Any, origin: str, context: ssl.SSLContext | None) -> None:
        self._loader = loader
        self._origin = origin
        self._context = context
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def authorization(self) -> str | None:
        """Return the plugin's token, asked for again each REFRESH_SECONDS (the loader caches by expiry)."""
        async with self._asking:
            if self._asked_at is None or time.monotonic() - self._asked_at >= REFRESH_SECONDS:
                await self._ask()
                self._asked_at = time.monotonic()
        token: str | None = getattr(self._loader, "token", None)
        return token

    def invalidate(self) -> None:
        """Ask the plugin at the next request, whatever expiry it told."""
        self._asked_at = None
        if hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
                await self._loader._load_authentication()
        except TimeoutError as error:
            raise Timeout(
                f"the login of {self._origin} gave no answer in {PLUGIN_TIMEOUT_SECONDS:.0f} s"
            ) from error
        # Plugins are foreign programs behind a library that raises whatever it meets (ConfigException,
        # OSError, KeyError, ValueError): each means that there are no credentials.
        except Exception as error:
            raise InvalidKubeconfig(f"the login of {self._origin} failed: {error}") from error
        self._take_certificate()

    def _take_certificate(self) -> None:
        certificate = getattr(self._loader, "cert_file", None)
        if certificate and self._context:
            self._context.load_cert_chain(certificate, getattr(self._loader, "key_file", None))


def library_credentials(
    config: dict[str, Any], context_name: str, origin: str, context: ssl.SSLContext | None
) -> LibraryCredentials:
    """Return credentials by kubernetes_asyncio's loader for one context of a whole kubeconfig."""
    # Imported here because it costs 0.6 s, which no plain token or certificate shall pay.
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    try:
        loader = KubeConfigLoader(config, active_context=context_name)
    except KubeError:
        raise
    except Exception as error:
        raise InvalidKubeconfig(f"{origin} cannot be used: {error}") from error
    return LibraryCredentials(loader, origin, context)
