"""The embedded cluster of a command: the API server, Berth's kinds, and the kubeconfig."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from admission.cli.common.errors import UnreachableError, WrongUsageError
from api.definitions.crds import KINDS, crd
from api.kube.client import KubeClient
from api.kube.embedded.server import EmbeddedServer
from api.kube.errors import AlreadyExists, NotFound
from api.kube.resources import CRDS, Resource

# The embedded server serves a new kind within milliseconds, a real one within a second or two.
_ESTABLISHED_SECONDS = 30.0
_POLL_SECONDS = 0.05
_EMBEDDED_CLUSTER_NAME = "berth"


@asynccontextmanager
async def embedded_server(kubeconfig: Path, *, port: int = 0) -> AsyncIterator[EmbeddedServer]:
    """Run an embedded API server and yield it after writing its kubeconfig to `kubeconfig`.

    Raises WrongUsageError if the port is in use, or if the file belongs to another cluster.
    """
    # Check this before anything starts: a mistyped path must not overwrite the credentials of a real cluster.
    check_may_write(kubeconfig)
    server = EmbeddedServer()
    try:
        await server.start(port=port)
    except OSError as error:
        raise WrongUsageError(
            f"cannot listen on port {port}: {error.strerror}; give another --port"
        ) from error
    try:
        write_kubeconfig(server, kubeconfig)
        yield server
    finally:
        await server.stop()


def check_may_write(path: Path) -> None:
    """Raise WrongUsageError if `path` exists and is not the kubeconfig of an embedded server."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsageError(f"{path} cannot be used as kubeconfig: {error}") from error
    if text.strip() and not _is_own_kubeconfig(text):
        raise WrongUsageError(
            f"{path} exists and is not a kubeconfig of an embedded server; give --kubeconfig a new file"
        )


def write_kubeconfig(server: EmbeddedServer, path: Path) -> None:
    """Write the kubeconfig atomically, so that a process that waits for the file finds it complete."""
    try:
        # Use the same folder, because a rename is atomic only within a file system.
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        os.close(handle)
        server.write_kubeconfig(name)
        Path(name).replace(path)
    except OSError as error:
        raise WrongUsageError(f"cannot write the kubeconfig {path}: {error.strerror}") from error


async def install_kinds(client: KubeClient) -> tuple[str, ...]:
    """Define those of Berth's kinds that the server lacks, and return the names of the new definitions.

    Returns when the server serves all kinds. Existing kinds, such as Kueue's own, are not changed. Raises
    UnreachableError if a kind is not served in time.
    """
    installed = []
    for kind in KINDS:
        definition = crd(kind)
        # Another process may define the same kinds at this moment; its definitions are equally valid.
        with suppress(AlreadyExists):
            await create(client, CRDS, definition)
            installed.append(str(definition["metadata"]["name"]))
    await _wait_served(client)
    return tuple(installed)


async def create(client: KubeClient, resource: Resource, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create an object from its manifest and return it as stored."""
    body = json.dumps(manifest).encode()
    answer = await client.create(resource, body, manifest["metadata"].get("namespace"))
    stored: dict[str, Any] = json.loads(answer)
    return stored


@asynccontextmanager
async def in_background(**works: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run `works`, each in a task with its keyword as name, while the body runs, and cancel them afterwards.

    If one fails, the body is cancelled and the error is raised in a group, where `errors.describe` finds it.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work, name=name) for name, work in works.items()]
        try:
            yield
        finally:
            await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    # Do not await them one by one: the task group raises their errors.
    await asyncio.wait(tasks)


async def _wait_served(client: KubeClient) -> None:
    # Request the kind itself: a definition can be established before every replica of a server serves it.
    paths = [_collection(definition) for definition in map(crd, KINDS)]
    try:
        async with asyncio.timeout(_ESTABLISHED_SECONDS):
            for path in paths:
                await _wait_found(client, path)
    except TimeoutError as error:
        raise UnreachableError(
            f"{client.server} has stored the definitions of Berth's kinds but does not serve them after"
            f" {_ESTABLISHED_SECONDS:g} s; look at the conditions of its CustomResourceDefinitions"
        ) from error


def _collection(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


async def _wait_found(client: KubeClient, path: str) -> None:
    while True:
        with suppress(NotFound):
            await client.request("GET", path, params={"limit": "1"})
            return
        await asyncio.sleep(_POLL_SECONDS)


def _is_own_kubeconfig(text: str) -> bool:
    try:
        document = yaml.safe_load(text)
        names = [cluster["name"] for cluster in document["clusters"]]
    except (yaml.YAMLError, TypeError, KeyError):
        return False
    # Recognise it by the name of its only cluster, which no real cluster has by chance.
    return names == [_EMBEDDED_CLUSTER_NAME]
