"""How a Redis is reached, beyond its URL: the password in a file, and TLS with a CA and a client certificate.

Secrets are given as files, never as text: a URL is shown in logs and process lists. The password is read at
each new connection, so that a replaced one needs no restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

import redis
from redis.credentials import CredentialProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """Paths of PEM files, and of the file that holds the password and nothing else; None: not used.

    `certificate` and `key` identify this client and go together. `sentinel_password_file` is for the default
    user of the Sentinels.
    """

    password_file: str | None = None
    sentinel_password_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether any file is for TLS."""
        return (self.ca, self.certificate, self.key) != (None, None, None)


class PasswordFile(CredentialProvider):
    """The user's name, "" for the default user, and the password as its file holds it now."""

    def __init__(self, user: str, path: str) -> None:
        self._user = user
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return user and password. Raises AuthenticationError where the file cannot be read."""
        try:
            password = read_password(self._path)
        except ValueError as error:
            # As a server without a password says it: `queues.store.faults` reads the first word.
            raise redis.AuthenticationError(f"NOAUTH {error}") from error
        return (self._user, password) if self._user else (password,)


def read_password(path: str) -> str:
    """Return the password in a file, without the newline at its end. Raises ValueError, naming the file."""
    try:
        password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the password file {path} cannot be read: {error}") from error
    if not password:
        raise ValueError(f"the password file {path} is empty")
    return password


def access_options(parts: SplitResult, access: StoreAccess) -> tuple[SplitResult, Mapping[str, Any]]:
    """Return the URL and options for the client library. Raises ValueError where they contradict."""
    options: dict[str, Any] = {}
    if access.uses_tls and not parts.scheme.startswith("rediss"):
        raise ValueError("its CA, certificate and key are for TLS, and the URL does not begin with rediss")
    if access.uses_tls:
        files = {"ssl_ca_certs": access.ca, "ssl_certfile": access.certificate, "ssl_keyfile": access.key}
        options |= {name: path for name, path in files.items() if path is not None}
    if access.password_file is not None:
        if parts.password is not None:
            raise ValueError("a password is in the URL and in a file; take it out of the URL")
        options["credential_provider"] = PasswordFile(parts.username or "", access.password_file)
        # The library accepts the user's name in one place only.
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return parts, options
