"""The webhooks: faults are reported at `kubectl apply`, and a new Job is suspended before it starts.

Berth works without them; they report mistakes sooner, and gate pods. kube-apiserver calls them before
it stores an object (deploy/webhooks): /mutate for new Jobs and pods, /validate for Jobs, ClusterQueues,
Cohorts, ResourceFlavors and Workloads. Both only read the controller's state, so a dry run is handled
like any other request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.runtime.logs import Log
from admission.reconcile.job.context import PodOwner
from admission.reconcile.job.defaults import DEFAULT_NAME, job_defaults
from admission.reconcile.pod.defaults import pod_defaults
from admission.reconcile.pod.parents import SERVING_GROUPS, parent_warnings, template_changes
from api import keys
from api.http.server import HttpError, Request, Response, Route, text_response
from api.jobs.job import to_job
from api.jobs.job_workload import job_template, unknown_keys
from api.jobs.pod import to_pod
from api.objects.cluster import JobObject, PodObject
from api.parsing.faults import ABSENT, FieldError
from api.validation import validate, validate_update
from api.wire import admission_review
from api.wire.admission_review import AdmissionRequest, Operation, read_object, read_review

log = Log("berth.webhooks")

# An AdmissionReview has the object twice on UPDATE, and kube-apiserver takes objects of up to 3 MiB.
MAX_BODY_BYTES = 8 << 20
# An author corrects a few at a time; a list of a million empty entries has as many faults.
MOST_FAULTS = 50

Decoded = TypeVar("Decoded", JobObject, PodObject)


class Webhooks:
    """The two webhooks. `is_ready`: whether queues, namespaces and priority classes are known."""

    def __init__(self, cluster_state: ClusterState, is_ready: Callable[[], bool]) -> None:
        self._cluster_state = cluster_state
        self._is_ready = is_ready
        self._patches = {("batch", "Job"): self._job_patch, ("", "Pod"): self._pod_patch}

    def routes(self) -> list[Route]:
        """Return the routes of the webhook port."""
        return [
            Route("GET", "/healthz", _answer_ok),
            Route("POST", "/mutate", self._mutate, max_body_bytes=MAX_BODY_BYTES),
            Route("POST", "/validate", self._validate, max_body_bytes=MAX_BODY_BYTES),
        ]

    async def _mutate(self, request: Request) -> Response:
        review = _read(request)
        # Deployments and StatefulSets do not need the caches, so they are answered at once.
        if self._is_serving(review):
            return _answer_serving(review)
        make_patch = self._patches.get(_kind(review))
        # A request on a subresource (status, scale) creates no Job.
        is_asked = review.operation is Operation.CREATE and not review.sub_resource
        if make_patch is None or not is_asked:
            return Response(body=admission_review.allow(review.uid))
        # An object that may have to be queued must not start before that is known: the user has to retry.
        if not self._is_ready():
            raise HttpError(503, "the caches have not synced yet; try again in a moment")
        return Response(body=admission_review.allow(review.uid, patch=make_patch(review)))

    def _is_serving(self, review: AdmissionRequest) -> bool:
        group, kind = _kind(review)
        is_served = SERVING_GROUPS.get(kind) == group and kind in self._cluster_state.serving_kinds
        return is_served and not review.sub_resource

    def _pod_patch(self, review: AdmissionRequest) -> list[dict[str, Any]]:
        # Without the pod integration nothing would ever remove the gate.
        if not self._cluster_state.pods.is_kept:
            return []
        body = _object(review.object)
        pod = to_pod(_decoded(review, PodObject))
        has_default_queue = self._has_default_queue(pod.namespace)
        context = self._cluster_state.job_context
        changes = pod_defaults(
            pod, body, context, creator=review.user_info.username, has_default_queue=has_default_queue
        )
        if changes and pod.owner is not None and context.pod_owner(pod) is PodOwner.UNKNOWN:
            # A new Job may not have been seen yet. Its pods must not be queued beside it, and no other pod
            # may pass. The Job controller tries again.
            job = f"Job {pod.namespace}/{pod.owner.name} with uid {pod.owner.uid}"
            raise HttpError(503, f"the pod's controller, {job}, is not known; try again in a moment")
        return admission_review.changes_patch(body, changes)

    def _job_patch(self, review: AdmissionRequest) -> list[dict[str, Any]]:
        body = _object(review.object)
        job = to_job(_decoded(review, JobObject))
        defaults = job_defaults(
            job, self._cluster_state.job_context, has_default_queue=self._has_default_queue(job.namespace)
        )
        patch = admission_review.labels_patch(body, defaults.labels)
        if defaults.suspends:
            # `add` replaces an existing value: a Job may say suspend: false.
            patch.append({"op": "add", "path": "/spec/suspend", "value": True})
        return patch

    async def _validate(self, request: Request) -> Response:
        review = _read(request)
        # DELETE has no new object to check.
        if review.operation not in (Operation.CREATE, Operation.UPDATE):
            return Response(body=admission_review.allow(review.uid))
        new, old = _object(review.object), _object(review.old_object)
        errors = self._errors(review, old, new)
        if not errors:
            return Response(body=admission_review.allow(review.uid, warnings=_warnings(review, new)))
        shown, more = errors[:MOST_FAULTS], len(errors) - MOST_FAULTS
        message = "; ".join([*map(str, shown), *([f"{more} more faults"] if more > 0 else ())])
        log.info("refused", kind=review.kind.kind, namespace=review.namespace, name=review.name, why=message)
        return Response(body=admission_review.refuse(review.uid, message))

    def _errors(
        self, review: AdmissionRequest, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> tuple[FieldError, ...]:
        if review.operation is Operation.CREATE:
            return validate(new)
        # An object that is being deleted is not checked, so that its deletion can finish.
        if (new.get("metadata") or {}).get("deletionTimestamp"):
            return ()
        errors = validate_update(old, new)
        # Only in a namespace with a default queue, which would queue the Job again at once: removing the
        # label would have no effect.
        if _kind(review) == ("batch", "Job") and self._has_default_queue(review.namespace):
            errors = (*errors, *_removed_queue(old, new))
        return errors

    def _has_default_queue(self, namespace: str) -> bool:
        return (namespace, DEFAULT_NAME) in self._cluster_state.specs.local_queues


def _answer_serving(review: AdmissionRequest) -> Response:
    """Answer for a new or changed Deployment or StatefulSet, from the object alone."""
    body = _object(review.object)
    patch = admission_review.changes_patch(body, template_changes(review.kind.kind, body))
    warnings = parent_warnings(body)
    return Response(body=admission_review.allow(review.uid, patch=patch, warnings=warnings))


def _read(request: Request) -> AdmissionRequest:
    try:
        return read_review(request.body)
    except ValueError as error:
        raise HttpError(400, str(error)) from error


def _kind(review: AdmissionRequest) -> tuple[str, str]:
    return review.kind.group, review.kind.kind


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return read_object(raw)
    except ValueError as error:
        raise HttpError(400, str(error)) from error


def _decoded(review: AdmissionRequest, wire: type[Decoded]) -> Decoded:
    """Return the object under review, with the namespace of the request."""
    try:
        found = msgspec.json.decode(review.object, type=wire)
    except msgspec.DecodeError as error:
        raise HttpError(400, f"the {review.kind.kind} cannot be read: {error}") from error
    # In an AdmissionReview the object may lack the namespace that it is created in.
    metadata = msgspec.structs.replace(found.metadata, namespace=review.namespace or found.metadata.namespace)
    return msgspec.structs.replace(found, metadata=metadata)


def _removed_queue(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldError, ...]:
    before, after = (
        ((obj.get("metadata") or {}).get("labels") or {}).get(keys.QUEUE_NAME) for obj in (old, new)
    )
    if not before or after:
        return ()
    rule = f"cannot be removed in a namespace with a LocalQueue named {DEFAULT_NAME}; it was {before!r}"
    return (FieldError(path=f"metadata.labels[{keys.QUEUE_NAME}]", value=ABSENT, rule=rule),)


def _warnings(review: AdmissionRequest, new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return warnings for the author of a valid Job: keys that Berth does not know."""
    if _kind(review) != ("batch", "Job"):
        return ()
    job, template = to_job(_decoded(review, JobObject)), job_template(new)
    if not _has_readable_metadata(template):
        raise HttpError(400, "spec.template of the Job, its metadata, labels and annotations must be objects")
    return unknown_keys(job, template)


def _has_readable_metadata(template: Any) -> bool:
    """Return whether a template and its metadata, labels and annotations, where set, are objects."""
    metadata = (template.get("metadata") or {}) if isinstance(template, dict) else None
    if not isinstance(metadata, dict):
        return False
    return all(isinstance(metadata.get(name) or {}, dict) for name in ("labels", "annotations"))


async def _answer_ok(request: Request) -> Response:
    del request
    return text_response("ok")
