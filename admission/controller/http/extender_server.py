"""The scheduler extender in a process without a controller: `berth extender`, or a child of a controller.

Every pod's scheduling waits for it, so it can run next to kube-scheduler, with replicas of its own, while
controllers are updated or stopped; its account may only read nodes and pods. A controller runs the same in a
child process (`extender_process`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.http.client_authority import ClientAuthority, Clients
from admission.controller.http.extender import Extender, render_error
from admission.controller.http.extender_profiles import ExtenderRules, extender_rules
from admission.controller.http.health import Health
from admission.controller.http.listening import Port, listen
from admission.controller.http.serving_certificates import FileCertificates
from admission.controller.http.shared_fabrics import SharedFabrics, StoreOptions, open_choices
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.config_file import ConfigFile
from admission.controller.runtime.logs import Log
from api.config.berth import ExtenderSettings
from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.history import begin_again_when_restored
from api.kube.resources import Resource
from api.wire.addressing import is_loopback

log = Log("berth.extender")

_OPEN = (
    "any client that reaches the port may learn where pods run and keep this process busy; give --client-ca,"
    " --tls-certificate and --tls-key"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions:
    """How it is started. `port` 0 means any free port. With certificate and key, PEM files, it serves TLS.

    With `client_ca`, a PEM file, it answers only clients with a certificate of this authority and one of
    `client_names`. Health is open to all. `rules` are those of the start; `config_file` is read again while
    it runs, and its section `extender` replaces them. `store` is the Redis in which replicas agree; None:
    each by itself.
    """

    kubeconfig: str | None = None
    bind: str = "127.0.0.1"
    port: int = 8888
    tls_certificate: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    client_names: tuple[str, ...] = ()
    rules: ExtenderRules = field(default_factory=ExtenderRules)
    config_file: str | None = None
    store: StoreOptions | None = None


async def run_extender(
    options: ExtenderOptions,
    *,
    on_listening: Callable[[Mapping[str, str]], None],
    on_ready: Callable[[], None] = lambda: None,
    on_refused: Callable[[str, str], None] = lambda _, __: None,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set. `on_listening` is called with the URL by port name.

    `on_ready` is called once all nodes and pods are known, `on_refused` with the port's name and the reason
    for each request that is refused. If the cluster is restored from a backup, all is read again, and
    `on_listening` and `on_ready` are called again. Raises KubeError, ListenError, OSError and ValueError at
    the start, each with a one-sentence message.
    """

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(await KubeClient.connect(options.kubeconfig))
            log.info("starting", server=client.server, server_version=await client.server_version())
            watch = NodePodWatch(client, _note_watch_error)
            shared = await _shared(options, client)
            stack.push_async_callback(shared.close)
            extender = Extender(watch, SystemClock(), rules=options.rules, shared=shared)
            certificates = await _certificates(options)
            port, clients = _port(options, watch, extender, certificates)
            on_listening({port.name: await listen(stack, port, on_refused=on_refused)})
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(watch.run(), name="watch-nodes-and-pods")]
                if certificates is not None:
                    tasks.append(group.create_task(certificates.run(), name="certificates"))
                if clients is not None:
                    following = clients.follow(partial(asyncio.to_thread, _accepted, options))
                    tasks.append(group.create_task(following, name="client-authority"))
                if options.config_file is not None:
                    file = ConfigFile(Path(options.config_file), partial(_take_settings, extender, options))
                    tasks.append(group.create_task(file.run(), name="configuration"))
                tasks.append(group.create_task(_call_when_synced(watch, on_ready), name="first-sync"))
                await stop.wait()
                log.info("stopping")
                for task in tasks:
                    task.cancel()

    await begin_again_when_restored(serve)


def _take_settings(extender: Extender, options: ExtenderOptions, settings: ExtenderSettings) -> None:
    extender.set_rules(extender_rules(settings, options.rules.scheduler_names))


async def _shared(options: ExtenderOptions, client: KubeClient) -> SharedFabrics:
    choices = await open_choices(options.store, client) if options.store is not None else None
    return SharedFabrics(choices, SystemClock())


async def _call_when_synced(watch: NodePodWatch, on_ready: Callable[[], None]) -> None:
    for informer in (watch.nodes, watch.pods):
        await informer.synced.wait()
    on_ready()


def _port(
    options: ExtenderOptions,
    watch: NodePodWatch,
    extender: Extender,
    certificates: FileCertificates | None,
) -> tuple[Port, Clients | None]:
    """Return the port, and whose certificates it accepts, None where it asks for none."""
    health = Health(lambda: not watch.unsynced(), watch.unsynced)
    routes, tls, clients = [*extender.routes(), *extender.state_routes()], None, None
    if certificates is not None:
        tls = certificates.serving_tls()
    if tls is not None and (authority := _accepted(options)) is not None:
        clients = Clients(authority, tls, is_required=False)
        routes = [replace(route, handler=clients.guarded(route.handler)) for route in routes]
    elif not is_loopback(options.bind):
        log.warning("extender-open", note=_OPEN)
    port = Port(
        name="extender",
        number=options.port,
        host=options.bind,
        routes=[*routes, *health.routes()],
        tls=tls,
        render_error=render_error,
    )
    return port, clients


def _accepted(options: ExtenderOptions) -> ClientAuthority | None:
    """Return whose certificates are accepted, as the file says it now; None without one. Raises OSError."""
    if options.client_ca is None:
        return None
    authority = Path(options.client_ca).read_text(encoding="utf-8")
    return ClientAuthority(authority=authority, allowed_names=options.client_names)


async def _certificates(options: ExtenderOptions) -> FileCertificates | None:
    if options.tls_certificate is None or options.tls_key is None:
        return None
    certificates = FileCertificates(Path(options.tls_certificate), Path(options.tls_key))
    await certificates.open()
    return certificates


def _note_watch_error(resource: Resource, error: KubeError) -> None:
    log.warning("watch-failed", resource=resource.plural, error=error)
