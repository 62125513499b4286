"""The ProvisioningRequests of a Workload and their PodTemplates: which are created, taken over and deleted.

    quota reserved ──▶ PodTemplates, owned by the Workload ──▶ ProvisioningRequest ──▶ it owns the templates
    evicted, finished, settings changed ──▶ deleted

A request that the API server refuses is named on its check (`node_checks`).
Source: Kueue, pkg/controller/admissionchecks/provisioning/controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from admission.decisions.api_writes import Event, ObjectVersion, Purpose, Verb, Write
from admission.reconcile.provisioning.context import ProvisioningContext
from admission.reconcile.provisioning.pod_sets import AdmittedPods, PodGroup, requested_pods
from admission.reconcile.workload.look import Look
from api import keys
from api.jobs.job_patches import toleration_body
from api.jobs.pod_template import Injection, StartConflict, injected
from api.object_events import EventType
from api.objects.common import OwnerReference
from api.provisioning import (
    REQUEST_KIND,
    REQUEST_VERSION,
    TEMPLATE_KIND,
    Outcome,
    ProvisioningConfig,
    ProvisioningRequest,
    attempt_of,
    request_name,
    template_name,
)
from api.workload import CheckState, Workload

_MANAGED = {keys.MANAGED: "true"}


def request_writes(look: Look) -> tuple[Write, ...]:
    """Return the writes on ProvisioningRequests and PodTemplates that the Workload needs now."""
    context, workload = look.context.provisioning, look.workload
    if context is None:
        return ()
    if workload.is_finished or workload.is_evicted:
        return tuple(_deletions(context, kept=frozenset()))
    # Without quota nothing is asked for, and what was asked for before stays.
    if not workload.has_quota_reservation:
        return ()
    asked = [_Asked.of(look, check, context.configs[check.name]) for check in checks_of(look)]
    kept = frozenset(one.present.uid for one in asked if one.present is not None)
    return (*_deletions(context, kept=kept), *(write for one in asked for write in one.writes(context)))


def checks_of(look: Look) -> tuple[CheckState, ...]:
    """Return the Workload's checks that its autoscaler answers."""
    context = look.context.provisioning
    return (
        () if context is None else tuple(one for one in look.workload.checks if one.name in context.configs)
    )


def present_request(
    workload: Workload, check: str, context: ProvisioningContext
) -> tuple[int, ProvisioningRequest] | None:
    """Return the last request for the check that asks for what the settings say now, with its number."""
    config = context.configs.get(check)
    found = [
        (attempt, request)
        for request in context.requests
        if (attempt := attempt_of(request.name, workload.key.name, check)) is not None
        and config is not None
        and request.matches(config)
        and not request.is_deleted
    ]
    return max(found, key=lambda one: one[0], default=None)


def needed_pods(look: Look, config: ProvisioningConfig) -> tuple[PodGroup, ...]:
    """Return what a request of the Workload is for now; () if it needs none."""
    return requested_pods(look.workload, msgspec.json.decode(look.raw), config)


def template_of(pods: AdmittedPods, context: ProvisioningContext) -> dict[str, Any]:
    """Return the template of pods as they start on the flavors of their admission. Raises StartConflict."""
    node_labels, tolerations = context.injection(pods.assignment)
    injection = Injection(
        node_selector=node_labels, tolerations=tuple(toleration_body(one) for one in tolerations)
    )
    return injected(pods.template, injection)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one check asks for: the pods, the request that is there, and the name of the one to be made."""

    look: Look
    config: ProvisioningConfig | None
    pods: tuple[PodGroup, ...]
    present: ProvisioningRequest | None
    name: str | None

    @classmethod
    def of(cls, look: Look, check: CheckState, config: ProvisioningConfig | None) -> _Asked:
        """Return what the check asks for."""
        context = look.context.provisioning
        pods = needed_pods(look, config) if config is not None else ()
        found = present_request(look.workload, check.name, context) if context is not None and pods else None
        # A check that is ready needs no request any more, even if its own was deleted.
        is_open = bool(pods) and check.state != "Ready"
        attempt = _next_attempt(look.workload, check, found) if is_open else None
        name = None if attempt is None else request_name(look.workload.key.name, check.name, attempt)
        return cls(look=look, config=config, pods=pods, present=found[1] if found else None, name=name)

    def writes(self, context: ProvisioningContext) -> Iterator[Write]:
        """Yield the next writes: the templates first, then the request that names them."""
        name = self.name or (self.present.name if self.present is not None else None)
        # An object of that name that is still being deleted has to go first.
        if name is None or (self.name and any(one.name == name for one in context.requests)):
            return
        templates = [(template_name(name, group.lead.name), group) for group in self.pods]
        missing = [one for one in templates if context.template(one[0]) is None]
        for template, group in missing:
            if write := self._template_creation(template, group, context):
                yield write
        if self.name is not None and self.config is not None:
            if not missing:
                yield self._request_creation(self.name, self.config, templates)
        elif self.present is not None:
            yield from self._adoptions(self.present, context)

    def _template_creation(self, name: str, group: PodGroup, context: ProvisioningContext) -> Write | None:
        try:
            template = template_of(group.lead, context)
        except StartConflict:
            # The check says so.
            return None
        body = {
            "template": template,
            **self._object("v1", TEMPLATE_KIND, name),
        }
        return self._creation(TEMPLATE_KIND, name, body, Purpose.CREATE_POD_TEMPLATE)

    def _request_creation(
        self, name: str, config: ProvisioningConfig, templates: list[tuple[str, PodGroup]]
    ) -> Write:
        spec = {
            "provisioningClassName": config.class_name,
            "parameters": {**config.parameters, **_parameters(self.look.workload)},
            "podSets": [
                {"podTemplateRef": {"name": template}, "count": group.count} for template, group in templates
            ],
        }
        body = {"spec": spec, **self._object(REQUEST_VERSION, REQUEST_KIND, name)}
        event = self.look.event(
            EventType.NORMAL, "ProvisioningRequestCreated", f'Created ProvisioningRequest: "{name}"'
        )
        return self._creation(REQUEST_KIND, name, body, Purpose.REQUEST_NODES, event)

    def _object(self, api_version: str, kind: str, name: str) -> dict[str, Any]:
        workload = self.look.workload
        metadata = {
            "name": name,
            "namespace": workload.key.namespace,
            "labels": _MANAGED,
            "ownerReferences": [_reference(keys.KUEUE_VERSION, "Workload", workload.key.name, workload.uid)],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def _creation(
        self, kind: str, name: str, body: dict[str, Any], purpose: Purpose, *events: Event
    ) -> Write:
        return Write(
            verb=Verb.CREATE,
            kind=kind,
            namespace=self.look.workload.key.namespace,
            name=name,
            body=msgspec.json.encode(body),
            purpose=purpose,
            events=events,
        )

    def _adoptions(self, request: ProvisioningRequest, context: ProvisioningContext) -> Iterator[Write]:
        """Yield the patches that make a request the owner of its templates, in place of the Workload."""
        for pods in request.pods:
            seen = context.template(pods.template)
            owners = (seen.owner_references if seen is not None else None) or ()
            if seen is None or any(one.uid == request.uid for one in owners):
                continue
            # Only one owner can be the controller: that of an earlier request is replaced as well.
            others = [_body(one) for one in owners if not one.controller]
            references = [*others, _reference(REQUEST_VERSION, REQUEST_KIND, request.name, request.uid)]
            version = ObjectVersion.of(TEMPLATE_KIND, seen)
            yield version.patch({"metadata": {"ownerReferences": references}}, Purpose.ADOPT_POD_TEMPLATE)


def _next_attempt(
    workload: Workload, check: CheckState, found: tuple[int, ProvisioningRequest] | None
) -> int | None:
    """Return the number of the request to be made now; None if there is nothing to make."""
    if found is None:
        return check.retry_count + 1
    attempt, request = found
    has_failed = request.is_true(Outcome.FAILED) or (
        # Pods that run have used the booking.
        request.is_true(Outcome.BOOKING_EXPIRED) and not workload.is_admitted
    )
    # A check that asks for a retry evicts first. The last request of an earlier quota was counted already.
    is_counted = check.state == "Pending" and check.retry_count >= attempt
    return attempt + 1 if has_failed and is_counted else None


def _deletions(context: ProvisioningContext, *, kept: frozenset[str]) -> Iterator[Write]:
    for request in context.requests:
        if request.uid not in kept and not request.is_deleted:
            version = ObjectVersion.of(REQUEST_KIND, request)
            yield version.in_any_version.deletion(Purpose.DELETE_REQUEST)


def _parameters(workload: Workload) -> dict[str, str]:
    """Return the parameters that the Workload's annotations name."""
    prefix = keys.PROVISIONING_PARAMETER_PREFIX
    return {
        key.removeprefix(prefix): value
        for key, value in workload.annotations.items()
        if key.startswith(prefix)
    }


def _reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _body(owner: OwnerReference) -> dict[str, Any]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
