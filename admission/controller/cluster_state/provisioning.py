"""The ProvisioningRequests of Workloads, their PodTemplates, and what the API server refused to create.

The definition of the requests belongs to the cluster autoscaler, so a cluster may have it, get it later, or
lose it. Both kinds are selected by the label that Kueue gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey
from admission.decisions.api_writes import Write
from admission.engine.engine import Engine
from admission.reconcile.provisioning.context import ProvisioningContext
from api.kube import resources
from api.kube.informer import Change, ChangeType
from api.kube.listing import Key
from api.objects.common import Meta, NamedObject
from api.objects.provisioning import ProvisioningRequestObject
from api.provisioning import ProvisioningRequest, to_provisioning_request
from api.workload import Workload

REQUEST, TEMPLATE = resources.PROVISIONING_REQUESTS.kind, resources.POD_TEMPLATES.kind


class Provisioning:
    """What is known of both kinds. `is_kept`: whether Berth asks autoscalers for nodes at all.

    `mark` is called with each Workload whose next step may have changed.
    """

    def __init__(self, engine: Engine, mark: Callable[[ObjectKey], None], *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._engine = engine
        self._mark = mark
        self._requests: ObjectCache[ProvisioningRequest] = ObjectCache()
        self._templates: ObjectCache[None] = ObjectCache()
        self._refused: dict[tuple[str, str, str], str] = {}

    def take_request(self, change: Change[ProvisioningRequestObject]) -> None:
        """Take a change of a request."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            if self._requests.forget(metadata):
                self._mark_owner(metadata)
        else:
            self._see_request(change.object)

    def take_template(self, change: Change[NamedObject]) -> None:
        """Take a change of a template."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            if self._templates.forget(metadata):
                self._mark_owner(metadata)
        else:
            self._see_template(metadata)

    def drop_unlisted_requests(self, listed: frozenset[Key], version: str) -> None:
        """Take a complete list of requests: those that it lacks are gone, and their kind is served."""
        self._engine.objects.note_provisioning_served()
        for seen in self._requests.missing_from(listed, version):
            self._requests.forget(seen.metadata)
            self._mark_owner(seen.metadata)

    def drop_unlisted_templates(self, listed: frozenset[Key], version: str) -> None:
        """Take a complete list of templates: those that it lacks are gone."""
        for seen in self._templates.missing_from(listed, version):
            self._templates.forget(seen.metadata)
            self._mark_owner(seen.metadata)

    def see_raw(self, kind: str, raw: bytes) -> None:
        """Take the bytes of a request or template from the answer to a write; other kinds are ignored."""
        if kind == REQUEST:
            self._see_request(_REQUEST.decode(raw))
        elif kind == TEMPLATE:
            self._see_template(_TEMPLATE.decode(raw).metadata)

    def note_refused(self, write: Write, error: Exception) -> None:
        """Record that the API server refused to create a request or a template."""
        if write.kind in (REQUEST, TEMPLATE):
            self._refused[write.kind, write.namespace, write.name] = str(error)

    def context_of(self, workload: Workload) -> ProvisioningContext | None:
        """Return what is asked for the Workload and answered; None if it has no such check and no request."""
        if not self.is_kept:
            return None
        configs = self._engine.queues.provisioning_configs(check.name for check in workload.checks)
        requests = self._requests.owned_by(workload.uid)
        if not configs and not requests:
            return None
        namespace = workload.key.namespace
        return ProvisioningContext(
            configs=configs,
            injection=self._engine.nodes.flavor_injection,
            requests=tuple(seen.value for seen in requests),
            template=partial(self._template, namespace),
            refused=lambda kind, name: self._refused.get((kind, namespace, name)),
        )

    def _template(self, namespace: str, name: str) -> Meta | None:
        seen = self._templates.get((namespace, name))
        return seen.metadata if seen is not None else None

    def _see_request(self, obj: ProvisioningRequestObject) -> None:
        if self._requests.is_newer(obj.metadata):
            self._requests.see(obj.metadata, to_provisioning_request(obj), b"")
            self._note_stored(REQUEST, obj.metadata)

    def _see_template(self, metadata: Meta) -> None:
        if self._templates.is_newer(metadata):
            self._templates.see(metadata, None, b"")
            self._note_stored(TEMPLATE, metadata)

    def _note_stored(self, kind: str, metadata: Meta) -> None:
        self._refused.pop((kind, metadata.namespace, metadata.name), None)
        self._mark_owner(metadata)

    def _mark_owner(self, metadata: Meta) -> None:
        """Mark the Workload that owns the object, by itself or through its request."""
        owner = metadata.controller
        if owner is not None and owner.kind == REQUEST:
            seen = self._requests.by_uid(owner.uid)
            owner = seen.metadata.controller if seen is not None else None
        if owner is not None and owner.kind == "Workload":
            self._mark((metadata.namespace, owner.name))


_REQUEST = msgspec.json.Decoder(ProvisioningRequestObject)
_TEMPLATE = msgspec.json.Decoder(NamedObject)
