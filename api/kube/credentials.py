"""Credentials for the API server: the Authorization header of every request, kept valid.

Plain tokens never change. Token files do: the kubelet rewrites the token of a service account well before it
expires, so the file is read again every minute. Exec plugins are in `exec_plugin.py`. The older
`auth-provider` (OpenID Connect, GCP) is left to kubernetes_asyncio, which is an extra and imported only then,
because the import takes 0.6 s and 40 MB.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from api.kube.errors import InvalidKubeconfig, KubeError, Timeout

# Maximum age of a token before its file is read, or its identity provider is asked, again. client-go
# uses the same value.
REFRESH_SECONDS = 60.0

# Maximum time that an identity provider may take.
PROVIDER_TIMEOUT_SECONDS = 60.0


class Credentials(Protocol):
    """A source of the Authorization header.

    `authorization` returns the value of the header, None for none, and `invalidate` is called after a 401. It
    may read a file or run a program, so it is awaited before each request.
    """

    async def authorization(self) -> str | None:
        """Return the value of the header, None for none. Raises KubeError if it cannot be obtained."""

    def invalidate(self) -> None:
        """Drop the cached value, because the server has rejected it."""


class FixedCredentials:
    """A header that never changes, or none (client certificates, no user)."""

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    async def authorization(self) -> str | None:
        """Return the fixed value."""
        return self._value

    def invalidate(self) -> None:
        """Do nothing, because there is no other value."""


class TokenFile:
    """A bearer token in a file that another program keeps valid."""

    def __init__(self, path: Path, origin: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._origin = origin
        self._clock = clock
        self._value = ""
        self._read_at = 0.0

    async def authorization(self) -> str | None:
        """Return the token of the file, read at most REFRESH_SECONDS ago.

        With the scheme, "Bearer ...". Raises InvalidKubeconfig if the file cannot be read or is empty.
        """
        if not self._value or self._clock() - self._read_at >= REFRESH_SECONDS:
            self._value = f"Bearer {self._read()}"
            self._read_at = self._clock()
        return self._value

    def invalidate(self) -> None:
        """Read the file again at the next request."""
        self._value = ""

    def _read(self) -> str:
        """Return the token in the file, without white space around it."""
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
    """Credentials that kubernetes_asyncio obtains of an identity provider: OIDC, GCP."""

    def __init__(self, loader: Any, origin: str) -> None:
        self._loader = loader
        self._origin = origin
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def authorization(self) -> str | None:
        """Return the provider's token, requested again every REFRESH_SECONDS.

        The loader caches it until it expires. Concurrent requests wait for one answer. Raises Timeout if
        there is none within PROVIDER_TIMEOUT_SECONDS, and InvalidKubeconfig if the login fails.
        """
        async with self._asking:
            if self._asked_at is None or time.monotonic() - self._asked_at >= REFRESH_SECONDS:
                await self._ask()
                self._asked_at = time.monotonic()
        token: str | None = getattr(self._loader, "token", None)
        return token

    def invalidate(self) -> None:
        """Ask the provider at the next request."""
        self._asked_at = None

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                await self._loader._load_authentication()
        except TimeoutError as error:
            raise Timeout(
                f"the login of {self._origin} gave no answer in {PROVIDER_TIMEOUT_SECONDS:.0f} s"
            ) from error
        # The library passes on any exception (ConfigException, OSError, KeyError, ValueError): each of them
        # means that there are no credentials.
        except Exception as error:
            raise InvalidKubeconfig(f"the login of {self._origin} failed: {error}") from error


def library_credentials(config: dict[str, Any], context_name: str, origin: str) -> LibraryCredentials:
    """Return credentials of kubernetes_asyncio's loader for one context of a complete kubeconfig.

    Raises InvalidKubeconfig if the library is not installed or rejects the kubeconfig.
    """
    # Imported here because it takes 0.6 s, which no other login needs.
    try:
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader
    except ImportError as error:
        raise InvalidKubeconfig(
            f"{origin} logs in by auth-provider, which needs the package kubernetes-asyncio:"
            " pip install 'berth-queue[login]'; or use an exec plugin"
        ) from error

    try:
        loader = KubeConfigLoader(config, active_context=context_name)
    except KubeError:
        raise
    except Exception as error:
        raise InvalidKubeconfig(f"{origin} cannot be used: {error}") from error
    return LibraryCredentials(loader, origin)
