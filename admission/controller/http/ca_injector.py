"""Tells kube-apiserver whom to trust: puts our authority into webhook configurations and APIServices.

These objects are the user's to create (deploy/webhooks, deploy/visibility) and to delete. While they exist
and lead to this controller's Service or, for webhooks, to any address under the name that is ours, their
caBundle is kept equal to the bundle in the Secret; nothing else of them is touched.
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
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.informer import Informer
from api.kube.resources import Resource
from api.objects import Meta, Wire
from api.wire.visibility import GROUP, VERSIONS

log = Log("berth.trust")

# Both kinds of webhook configuration bear this name.
WEBHOOKS = "berth-webhooks"

# The pause after a refused write: another may have changed the object, or the right is still to be given.
RETRY_SECONDS = 5.0


class _ServiceRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(Wire, frozen=True):
    ca_bundle: str | None = None


class _Webhook(Wire, frozen=True):
    client_config: _ClientConfig = _ClientConfig()


class WebhookConfiguration(Wire, frozen=True):
    """ValidatingWebhookConfiguration and MutatingWebhookConfiguration."""

    metadata: Meta
    webhooks: tuple[_Webhook, ...] | None = None


class _ApiServiceSpec(Wire, frozen=True):
    service: _ServiceRef | None = None
    ca_bundle: str | None = None


class ApiService(Wire, frozen=True):
    """apiregistration.k8s.io APIService."""

    metadata: Meta
    spec: _ApiServiceSpec = _ApiServiceSpec()


@dataclass(frozen=True, slots=True)
class _Fields:
    """Where caBundles of one object stand that are not as wanted, as JSON pointers."""

    resource: Resource
    metadata: Meta
    pointers: Sequence[str]


class TrustPublisher:
    """Keeps caBundles up to date. `trusted` gives the present bundle, None for nothing to publish."""

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
            self._informer(resources.API_SERVICES, ApiService, f"{version}.{GROUP}") for version in VERSIONS
        )

    def _informer(self, resource: Resource, type_: type[Any], name: str) -> Informer[Any]:
        return Informer(
            self._client,
            resource,
            type_,
            lambda _: self.publish(),
            # By name: the watch brings this one object and no others of its kind.
            on_error=partial(_log_error, resource),
            params={"fieldSelector": f"metadata.name={name}"},
            optional=True,
        )

    def publish(self) -> None:
        """Look at all objects again, soon."""
        self._is_due.set()

    async def run(self) -> None:
        # One task writes; watches only say that there is something to do.
        """Watch and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (*self._configurations, *self._services):
                group.create_task(informer.run(), name=f"trust-{informer.resource.plural}")
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                if not await self._write_all():
                    # Sooner where an object changes: the new version may be what it waited for.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_SECONDS):
                            await self._is_due.wait()
                    self._is_due.set()

    async def _write_all(self) -> bool:
        """Bring every object to the present bundle; return False where one was refused."""
        trusted = self._trusted()
        if trusted is None:
            return True
        bundle = base64.b64encode(trusted).decode()
        # A copy, since a write changes the very store that is walked over.
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
        # Somebody else's APIService of the same group is none of ours: it may lead to Kueue.
        ours = _ServiceRef(namespace=self._namespace, name=SERVICE)
        for informer in self._services:
            for found in informer.store.values():
                if found.spec.service == ours and found.spec.ca_bundle != bundle:
                    yield _Fields(informer.resource, found.metadata, ["/spec/caBundle"])

    async def _write(self, fields: _Fields, bundle: str) -> bool:
        resource, name = fields.resource, fields.metadata.name
        # The index of a webhook is only right for the version that was seen.
        # The version is checked by the server: the indexes are those of the object as it was seen.
        version = {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": fields.metadata.resource_version,
        }
        # "add" replaces what is there and works where nothing is.
        steps = [{"op": "add", "path": pointer, "value": bundle} for pointer in fields.pointers]
        try:
            await self._client.request(
                "PATCH",
                resource.path(name=name),
                body=msgspec.json.encode([version, *steps]),
                content_type="application/json-patch+json",
            )
        except KubeError as error:
            log.warning("trust-not-published", resource=resource.plural, name=name, error=error)
            return False
        log.info("trust-published", resource=resource.plural, name=name)
        return True


def _log_error(resource: Resource, error: KubeError) -> None:
    log.warning("watch-failed", resource=resource.plural, error=error)
