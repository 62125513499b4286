"""The CA injector: puts our authority into webhook configurations, APIServices and definitions.

Users create these objects (deploy/webhooks, deploy/visibility, deploy/crds) and delete them. If an object
exists and points to this controller's Service or, for webhooks, has the name reserved for ours, its caBundle
is kept equal to the bundle in the Secret. Nothing else in it is changed.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from admission.controller.http.serving_certificates import SERVICE
from admission.controller.runtime.logs import Log
from api.definitions.crds import CONVERTED_KINDS, KINDS
from api.kube import resources
from api.kube.client import JSON_PATCH, Body, KubeClient
from api.kube.errors import KubeError
from api.kube.informer import Informer, Listener, ListWatch
from api.kube.resources import Resource
from api.objects.common import Meta, Wire
from api.wire import training_jobs
from api.wire.visibility import GROUP, VERSIONS

log = Log("berth.trust")

# The APIServices of deploy/visibility.
API_SERVICES = (
    *(f"{version}.{GROUP}" for version in VERSIONS),
    f"{training_jobs.VERSION}.{training_jobs.GROUP}",
)
# The definitions of deploy/crds whose objects are converted.
DEFINITIONS = tuple(f"{kind.plural}.{kind.group}" for kind in KINDS if kind.name in CONVERTED_KINDS)
# The name of both kinds of webhook configuration.
WEBHOOKS = "berth-webhooks"

_CONVERSION_BUNDLE = "/spec/conversion/webhook/clientConfig/caBundle"

# The pause after a refused write: the object may have changed, or a permission may still be granted.
RETRY_SECONDS = 5.0


class _ServiceRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(Wire, frozen=True):
    service: _ServiceRef | None = None
    ca_bundle: str | None = None


class _Webhook(Wire, frozen=True):
    client_config: _ClientConfig = _ClientConfig()


class WebhookConfiguration(Wire, frozen=True):
    """A ValidatingWebhookConfiguration or MutatingWebhookConfiguration."""

    metadata: Meta
    webhooks: tuple[_Webhook, ...] | None = None


class _ApiServiceSpec(Wire, frozen=True):
    service: _ServiceRef | None = None
    ca_bundle: str | None = None


class ApiService(Wire, frozen=True):
    """An APIService of apiregistration.k8s.io."""

    metadata: Meta
    spec: _ApiServiceSpec = _ApiServiceSpec()


class _Conversion(Wire, frozen=True):
    webhook: _Webhook | None = None


class _DefinitionSpec(Wire, frozen=True):
    conversion: _Conversion = _Conversion()


class Definition(Wire, frozen=True):
    """A CustomResourceDefinition, of which only the conversion is read."""

    metadata: Meta
    spec: _DefinitionSpec = _DefinitionSpec()


@dataclass(frozen=True, slots=True)
class _Fields:
    """The caBundles of one object that are outdated, as JSON pointers."""

    resource: Resource
    metadata: Meta
    pointers: Sequence[str]


class TrustPublisher:
    """Keeps caBundles up to date. `trusted` returns the present bundle; None: publish nothing."""

    def __init__(self, client: KubeClient, *, namespace: str, trusted: Callable[[], bytes | None]) -> None:
        self._client = client
        self._namespace = namespace
        self._trusted = trusted
        self._is_due = asyncio.Event()
        self._configurations = tuple(
            self._informer(resource, WebhookConfiguration, WEBHOOKS)
            for resource in (resources.VALIDATING_WEBHOOKS, resources.MUTATING_WEBHOOKS)
        )
        self._services = tuple(
            self._informer(resources.API_SERVICES, ApiService, name) for name in API_SERVICES
        )
        self._definitions = tuple(self._informer(resources.CRDS, Definition, name) for name in DEFINITIONS)

    def _informer(self, resource: Resource, type_: type[Any], name: str) -> Informer[Any]:
        what = ListWatch(
            resource=resource,
            type_=type_,
            # The watch is restricted to this one object.
            params={"fieldSelector": f"metadata.name={name}"},
            optional=True,
        )
        listener: Listener[Any] = Listener(on_change=lambda _: self.publish())
        return Informer(self._client, what, listener, on_error=partial(_log_error, resource))

    def publish(self) -> None:
        """Have all objects checked again soon."""
        self._is_due.set()

    async def run(self) -> None:
        """Watch and write until cancelled."""
        # One task writes; the watches only say that there is something to do.
        async with asyncio.TaskGroup() as group:
            for informer in (*self._configurations, *self._services, *self._definitions):
                group.create_task(informer.run(), name=f"trust-{informer.resource.plural}")
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                if not await self._write_all():
                    # A change of an object ends the pause: the new version may be writable.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_SECONDS):
                            await self._is_due.wait()
                    self._is_due.set()

    async def _write_all(self) -> bool:
        """Write the present bundle into every object. Return False if a write was refused."""
        trusted = self._trusted()
        if trusted is None:
            return True
        bundle = base64.b64encode(trusted).decode()
        # A copy, because a write changes the store that is iterated over.
        results = [await self._write(fields, bundle) for fields in list(self._outdated(bundle))]
        return all(results)

    def _outdated(self, bundle: str) -> Iterator[_Fields]:
        for informer in self._configurations:
            for found in informer.store.values():
                pointers = [
                    f"/webhooks/{index}/clientConfig/caBundle"
                    for index, webhook in enumerate(found.webhooks or ())
                    if webhook.client_config.ca_bundle != bundle
                ]
                if pointers:
                    yield _Fields(informer.resource, found.metadata, pointers)
        # Another owner's APIService or definition of the same name is left alone: it may point to Kueue.
        ours = _ServiceRef(namespace=self._namespace, name=SERVICE)
        for informer in self._services:
            for found in informer.store.values():
                if found.spec.service == ours and found.spec.ca_bundle != bundle:
                    yield _Fields(informer.resource, found.metadata, ["/spec/caBundle"])
        for informer in self._definitions:
            for found in informer.store.values():
                webhook = found.spec.conversion.webhook
                config = webhook.client_config if webhook is not None else None
                if config is not None and config.service == ours and config.ca_bundle != bundle:
                    yield _Fields(informer.resource, found.metadata, [_CONVERSION_BUNDLE])

    async def _write(self, fields: _Fields, bundle: str) -> bool:
        resource, name = fields.resource, fields.metadata.name
        # The server checks the version, because the indexes of the webhooks hold only for the
        # version that was seen.
        version = {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": fields.metadata.resource_version,
        }
        # "add" replaces an existing value and also works if there is none.
        steps = [{"op": "add", "path": pointer, "value": bundle} for pointer in fields.pointers]
        try:
            await self._client.request(
                "PATCH",
                resource.path(name=name),
                body=Body(msgspec.json.encode([version, *steps]), JSON_PATCH),
            )
        except KubeError as error:
            log.warning("trust-not-published", resource=resource.plural, name=name, error=error)
            return False
        log.info("trust-published", resource=resource.plural, name=name)
        return True


def _log_error(resource: Resource, error: KubeError) -> None:
    log.warning("watch-failed", resource=resource.plural, error=error)
