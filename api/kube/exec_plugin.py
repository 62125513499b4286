"""Credentials of an exec plugin: the program that a kubeconfig names prints a token or a client certificate.

Most cloud providers log in by one. The program gets its question in $KUBERNETES_EXEC_INFO and prints an
ExecCredential. Its answer is kept until it expires or the API server rejects it, as client-go keeps it.

Source: kubernetes.io, "client-go credential plugins"; the group client.authentication.k8s.io.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from api.kube.client_tls import ClientTls
from api.kube.errors import InvalidKubeconfig, Timeout
from api.parsing.times import to_seconds

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")

# Maximum time that a plugin may take, and one that a person answers, by a browser or a code.
PLUGIN_TIMEOUT_SECONDS = 60.0
INTERACTIVE_TIMEOUT_SECONDS = 600.0

# Maximum length of what a plugin printed that a message quotes.
_MAX_QUOTED_CHARACTERS = 300


class _EnvironmentVariable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    """The field `exec` of a user."""

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_EnvironmentVariable, ...] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """The program of a user, and what it is told: `cluster` if the kubeconfig passes the cluster on."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    is_interactive: bool
    install_hint: str
    cluster: Mapping[str, Any] | None


def read_exec_plugin(
    fields: object, *, origin: str, folder: Path, cluster: Mapping[str, Any], is_terminal: bool | None = None
) -> ExecPlugin:
    """Return the plugin that the field `exec` of a user describes.

    `cluster` is the ExecCredential's `spec.cluster`. `is_terminal` says whether a person can answer, by
    default whether standard input is a terminal. Raises InvalidKubeconfig.
    """
    try:
        given = msgspec.convert(fields, _Exec)
    except msgspec.ValidationError as error:
        raise InvalidKubeconfig(f"exec of {origin} cannot be read: {error}") from error
    if given.api_version not in _VERSIONS:
        raise InvalidKubeconfig(
            f"exec.apiVersion of {origin} is {given.api_version!r}; expected {' or '.join(_VERSIONS)}"
        )
    if is_terminal is None:
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if given.interactive_mode == "Always" and not is_terminal:
        raise InvalidKubeconfig(
            f"the login of {origin} asks a person (exec.interactiveMode: Always), and standard input is no"
            " terminal"
        )
    command = given.command
    if os.sep in command:
        # As for other paths of a kubeconfig: relative to its file.
        command = str(folder / Path(command).expanduser())
    return ExecPlugin(
        command=(command, *(given.args or ())),
        environment={one.name: one.value for one in given.env or ()},
        api_version=given.api_version,
        is_interactive=is_terminal and given.interactive_mode != "Never",
        install_hint=given.install_hint.strip(),
        cluster=cluster if given.provide_cluster_info else None,
    )


class ExecCredentials:
    """The Authorization header that an exec plugin gives; `tls` shows a certificate instead."""

    def __init__(
        self,
        plugin: ExecPlugin,
        origin: str,
        tls: ClientTls | None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plugin = plugin
        self._origin = origin
        self._tls = tls
        self._clock = clock
        self._asking = asyncio.Lock()
        self._status: _Status | None = None
        self._expires_at: float | None = None

    async def authorization(self) -> str | None:
        """Return the plugin's token, None if it gives a certificate.

        Concurrent requests wait for one call of the plugin. Raises Timeout if it does not answer in time,
        and InvalidKubeconfig if it fails.
        """
        async with self._asking:
            if self._status is None or self._is_expired():
                self._status = await self._ask()
            return f"Bearer {self._status.token}" if self._status.token else None

    def invalidate(self) -> None:
        """Call the plugin at the next request, whatever expiration it reported."""
        self._status = None

    def _is_expired(self) -> bool:
        return self._expires_at is not None and self._clock() >= self._expires_at

    async def _ask(self) -> _Status:
        """Return what the plugin prints, after a certificate in it was loaded."""
        status = self._read(await self._printed())
        if status.client_certificate_data and self._tls is not None:
            self._tls.show(
                status.client_certificate_data.encode(), status.client_key_data.encode(), self._origin
            )
        return status

    async def _printed(self) -> bytes:
        plugin = self._plugin
        limit = INTERACTIVE_TIMEOUT_SECONDS if plugin.is_interactive else PLUGIN_TIMEOUT_SECONDS
        process = await self._started()
        try:
            async with asyncio.timeout(limit):
                printed, complained = await process.communicate()
        except TimeoutError as error:
            raise Timeout(f"the login of {self._origin} gave no answer in {limit:.0f} s") from error
        finally:
            if process.returncode is None:
                # It may have ended by itself just now.
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            raise self._failed(f"{plugin.command[0]} exited with {process.returncode}", complained)
        return printed

    async def _started(self) -> Process:
        """Start the plugin. A person sees what it asks; of others, standard error is for the message."""
        plugin = self._plugin
        spec = {
            "interactive": plugin.is_interactive,
            **({"cluster": plugin.cluster} if plugin.cluster else {}),
        }
        question = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **plugin.environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode(),
        }
        try:
            return await asyncio.create_subprocess_exec(
                *plugin.command,
                env=environment,
                stdin=None if plugin.is_interactive else asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=None if plugin.is_interactive else PIPE,
            )
        except (OSError, ValueError) as error:
            raise self._failed(f"{plugin.command[0]}: {getattr(error, 'strerror', None) or error}") from error

    def _read(self, printed: bytes) -> _Status:
        """Return the status of what it printed, and take its expiration. Raises InvalidKubeconfig."""
        try:
            credential = msgspec.json.decode(printed, type=_ExecCredential)
            expires_at = to_seconds(credential.status.expiration_timestamp) or None
        except (ValueError, UnicodeDecodeError) as error:
            raise self._failed(f"{self._plugin.command[0]} printed no ExecCredential: {error}") from error
        status = credential.status
        if credential.kind != "ExecCredential" or credential.api_version != self._plugin.api_version:
            raise self._failed(
                f"{self._plugin.command[0]} printed {credential.kind} of {credential.api_version}; expected"
                f" ExecCredential of {self._plugin.api_version}"
            )
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise self._failed(
                f"{self._plugin.command[0]} printed neither a token nor a client certificate with its key"
            )
        self._expires_at = expires_at
        return status

    def _failed(self, what: str, complained: bytes | None = None) -> InvalidKubeconfig:
        """Return the error, with what the plugin said of it and how it is installed."""
        said = " ".join((complained or b"").decode(errors="replace").split())[-_MAX_QUOTED_CHARACTERS:]
        hint = " ".join(self._plugin.install_hint.split())
        parts = (f"the login of {self._origin} failed: {what}", said and f": {said}", hint and f"; {hint}")
        return InvalidKubeconfig("".join(parts))
