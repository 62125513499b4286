"""The cluster that a command brings along: the embedded API server, Berth's kinds, and the kubeconfig."""

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
from api.kube.embedded import EmbeddedServer
from api.kube.errors import AlreadyExists, NotFound
from api.kube.resources import CRDS, Resource

# A kind is served within milliseconds by the embedded server, within a second or two by a real one.
_ESTABLISHED_SECONDS = 30.0
_POLL_SECONDS = 0.05
_EMBEDDED_CLUSTER_NAME = "berth"


@asynccontextmanager
async def embedded_server(kubeconfig: Path, *, port: int = 0) -> AsyncIterator[EmbeddedServer]:
    """Run an embedded API server; write its kubeconfig to `kubeconfig` before it is given out.

    Raises WrongUsageError where the port is taken, or the file belongs to another cluster.
    """
    # Before anything is started: a mistyped path must not cost somebody a real cluster's credentials.
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
    """Raise WrongUsageError where `path` holds what a user would miss: another cluster's kubeconfig, say."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsageError(f"{path} cannot be used as kubeconfig: {error}") from error
    if text.strip() and not _is_own_kubeconfig(text):
        raise WrongUsageError(
            f"{path} exists and is no kubeconfig of an embedded server; give --kubeconfig a new file"
        )


def write_kubeconfig(server: EmbeddedServer, path: Path) -> None:
    """Write the kubeconfig at once as a whole: whoever waits for the file finds it complete."""
    try:
        # In the same folder, since a rename is one step only within a file system.
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        os.close(handle)
        server.write_kubeconfig(name)
        Path(name).replace(path)
    except OSError as error:
        raise WrongUsageError(f"cannot write the kubeconfig {path}: {error.strerror}") from error


async def install_kinds(client: KubeClient) -> tuple[str, ...]:
    """Define those of Berth's kinds that the server does not have, and return the names of the new ones.

    Returns when the server serves all of them. Kinds that are there (Kueue's own, say) are left alone.
    """
    installed = []
    for kind in KINDS:
        definition = crd(kind)
        # Another process may define the same kinds at this moment; whoever is first is right.
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
    """Run `works`, each in a task of its name, while the body runs, and cancel them when it is done.

    One that fails cancels the body; its error is raised in a group, in which `berth` finds it.
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
    # Not awaited one by one: an error of theirs is the group's to raise.
    await asyncio.wait(tasks)


async def _wait_served(client: KubeClient) -> None:
    # By asking for the kind itself: a definition is established before every replica of a server serves it.
    paths = [_collection(definition) for definition in map(crd, KINDS)]
    try:
        async with asyncio.timeout(_ESTABLISHED_SECONDS):
            for path in paths:
                await _wait_found(client, path)
    except TimeoutError as error:
        raise UnreachableError(
            f"{client.server} has taken the definitions of Berth's kinds and does not serve them after"
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
    # Told by its one cluster's name, which nobody gives a real one by chance.
    return names == [_EMBEDDED_CLUSTER_NAME]
