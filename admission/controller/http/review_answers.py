"""The answers to AdmissionReviews, as pure functions of a review and of what surrounds its object.

Small reviews are answered on the event loop, large ones in a child process (`review_process`). So all that
an answer depends on apart from the review is one value that can be sent: `Surroundings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never, TypeVar

import msgspec

from admission.reconcile.job.context import JobContext, JobSettings, PodOwner
from admission.reconcile.job.defaults import DEFAULT_NAME, NO_DEFAULTS, JobDefaults, job_defaults
from admission.reconcile.pod.defaults import group_fault, placed_fault, pod_defaults
from admission.reconcile.pod.parents import SERVING_GROUPS, parent_warnings, template_changes
from api import keys
from api.http.server import HttpError
from api.jobs.job import ComposeError, to_job
from api.jobs.job_workload import job_template, unknown_keys
from api.jobs.owners.composing import read_pod_sets
from api.jobs.owners.external import ExternalKind
from api.jobs.owners.owner import counts, to_owner
from api.jobs.owners.paths import Body, Path, value_at
from api.jobs.owners.row import SUSPEND, Child, OwnerKind
from api.jobs.owners.rules import validate_owner, validate_owner_update
from api.jobs.owners.table import kind_of, row_of_kind
from api.jobs.pod import POD_KIND, Pod, claims_job, to_pod
from api.jobs.queued_object import QueuedJob
from api.jobs.resource_requests import LimitRange
from api.objects.cluster import JobObject, OwnerObject, PodObject
from api.objects.common import OwnerReference, Wire, WireSelector
from api.parsing.faults import ABSENT, FieldError
from api.selectors import matches_selector
from api.validation import validate, validate_update
from api.validation.updates import GROUP_SIZE
from api.wire import admission_review
from api.wire.admission_review import AdmissionRequest, Operation, read_object

# An author corrects a few at a time; a list of a million empty entries has as many faults.
MOST_FAULTS = 50

Decoded = TypeVar("Decoded", JobObject, OwnerObject, PodObject)


class OwnerJob(msgspec.Struct, frozen=True, kw_only=True):
    """The Job with the uid that a pod names. `gets_pods`: the Job controller creates pods for it."""

    namespace: str
    name: str
    gets_pods: bool
    selector: WireSelector | None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """An owner of the table that a new object names as its controller, and it as expanded, in JSON.

    `kind` is its kind. `waits`: what it counts must not run, because no Workload above it is admitted.
    `raw` is empty if the owner is not known yet: then everything counts as its own. `limits` are those of the
    namespace.
    """

    kind: str
    raw: bytes
    waits: bool
    limits: tuple[LimitRange, ...] = ()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the namespace of a request, and of the configuration.

    `is_ready`: the control loop has taken in all first lists. `holds_pods`, `serving_kinds`, `owner_kinds`
    and `has_slices`: the integrations that are on, and whether elastic Jobs are. `gates_off`: Kueue's feature
    gates that are switched off. `owner`: None if no Job has the uid that the pod names. `parent`: None if no
    owner of the table is the controller of the object. `set_group`: name and size of the group of the
    StatefulSet that a pod names as its controller; "" for any other pod. `external`: the kinds that the
    configuration describes.
    """

    is_ready: bool
    holds_pods: bool
    serving_kinds: frozenset[str]
    manages_without_queue_name: bool
    queues_plain_pods: bool
    is_managed: bool
    has_default_queue: bool
    has_default_class: bool
    selects_pods: bool
    pod_selector: WireSelector
    owner: OwnerJob | None
    gates_off: frozenset[str] = frozenset()
    owner_kinds: frozenset[str] = frozenset()
    has_slices: bool = False
    parent: Parent | None = None
    set_group: tuple[str, int] = ("", 0)
    external: tuple[ExternalKind, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer. `refused`: why the object is refused; empty if it is not."""

    body: bytes
    refused: str = ""


class _OwnedMetadata(Wire, frozen=True):
    owner_references: tuple[OwnerReference, ...] | None = None


class _Owned(Wire, frozen=True):
    """The part of an object that says who owns it."""

    metadata: _OwnedMetadata = _OwnedMetadata()


# Without it, the groups of a LeaderWorkerSet may change their size while it is in a queue.
_GROUP_SIZE_GATE = "LWSImmutableGroupSize"
_OWNED = msgspec.json.Decoder(_Owned)
_JOB_TEMPLATE: Path = ("spec", "template")
# The kinds that get their finalizer at creation. Source: Kueue, pkg/webhooks.
_KEPT = frozenset({(keys.KUEUE_GROUP, "ClusterQueue"), (keys.KUEUE_GROUP, "ResourceFlavor")})


def mutate(review: AdmissionRequest, around: Surroundings) -> Answer:
    """Return what the object lacks. Raises HttpError."""
    # Deployments and StatefulSets do not need the caches, so they are answered at once.
    if _is_serving(review, around):
        return _answer_serving(review)
    # A request on a subresource (status, scale) creates no object.
    is_asked = review.operation is Operation.CREATE and not review.sub_resource
    if is_asked and _kind(review) in _KEPT:
        return _answer_kept(review)
    answer = _mutation(review, around)
    if answer is None or not is_asked:
        return Answer(body=admission_review.allow(review.uid))
    # An object that may have to be queued must not start before that is known: the user has to retry.
    if not around.is_ready:
        raise HttpError(503, "the caches have not synced yet; try again in a moment")
    return answer(review, around)


def _mutation(
    review: AdmissionRequest, around: Surroundings
) -> Callable[[AdmissionRequest, Surroundings], Answer] | None:
    known = {("batch", "Job"): _answer_job, ("", "Pod"): _answer_pod}.get(_kind(review))
    if known is not None or review.kind.kind not in around.owner_kinds:
        return known
    row = kind_of(f"{review.kind.group}/{review.kind.version}", review.kind.kind)
    return partial(_answer_owner, row) if row is not None else None


def check(review: AdmissionRequest, around: Surroundings) -> Answer:
    """Return whether the object is valid, with all its faults. Raises HttpError."""
    # DELETE has no new object to check.
    is_asked = review.operation in (Operation.CREATE, Operation.UPDATE)
    # Nor is a serving object of a kind that is switched off: its pods are not queued.
    if not is_asked or (review.kind.kind in SERVING_GROUPS and not _is_serving(review, around)):
        return Answer(body=admission_review.allow(review.uid))
    new, old = _object(review.object), _object(review.old_object)
    errors = _errors(review, around, old, new)
    if not errors:
        return Answer(body=admission_review.allow(review.uid, warnings=_warnings(review, new)))
    shown, more = errors[:MOST_FAULTS], len(errors) - MOST_FAULTS
    message = "; ".join([*map(str, shown), *([f"{more} more faults"] if more > 0 else ())])
    return Answer(body=admission_review.refuse(review.uid, message), refused=message)


def controller_of(review: AdmissionRequest) -> OwnerReference | None:
    """Return the controller that a new object names; None if there is none."""
    try:
        owners = _OWNED.decode(review.object).metadata.owner_references or ()
    # The answer says what is wrong with the object.
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return next((one for one in owners if one.controller), None)


# --- /mutate -------------------------------------------------------------------------------------


def _is_serving(review: AdmissionRequest, around: Surroundings) -> bool:
    group, kind = _kind(review)
    is_served = SERVING_GROUPS.get(kind) == group and kind in around.serving_kinds
    return is_served and not review.sub_resource


def _answer_serving(review: AdmissionRequest) -> Answer:
    """Answer for a new or changed Deployment or StatefulSet, from the object alone."""
    body, before = _object(review.object), _object(review.old_object)
    patch = admission_review.changes_patch(body, template_changes(review.kind.kind, body, before))
    return Answer(body=admission_review.allow(review.uid, patch=patch, warnings=parent_warnings(body)))


def _answer_kept(review: AdmissionRequest) -> Answer:
    """Add the finalizer of a ClusterQueue or flavor: it could be in use and deleted before the next look."""
    body = _object(review.object)
    present = (body.get("metadata") or {}).get("finalizers") or []
    if keys.RESOURCE_IN_USE in present:
        return Answer(body=admission_review.allow(review.uid))
    changes: dict[tuple[str, ...], object] = {("metadata", "finalizers"): [*present, keys.RESOURCE_IN_USE]}
    patch = admission_review.changes_patch(body, changes)
    return Answer(body=admission_review.allow(review.uid, patch=patch))


def _answer_pod(review: AdmissionRequest, around: Surroundings) -> Answer:
    # Without the pod integration nothing would ever remove the gate.
    if not around.holds_pods:
        return Answer(body=admission_review.allow(review.uid))
    body = _object(review.object)
    pod = to_pod(_decoded(review, PodObject))
    context = _context(around, body)
    changes = pod_defaults(
        pod,
        body,
        context,
        creator=review.user_info.username,
        has_default_queue=around.has_default_queue,
        set_group=around.set_group,
    )
    if changes and pod.owner is not None and context.pod_owner(pod) is PodOwner.UNKNOWN:
        # A new owner may not have been seen yet. Its pods must not be queued beside it, and no other pod
        # may pass. The Job controller tries again.
        owner = f"{pod.owner.kind} {pod.namespace}/{pod.owner.name} with uid {pod.owner.uid}"
        why = "is not known" if around.parent is None or not around.parent.raw else "is not admitted"
        raise HttpError(503, f"the pod's controller, {owner}, {why}; try again in a moment")
    if changes and (fault := placed_fault(pod) or group_fault(_grouped(pod, changes))) is not None:
        return Answer(body=admission_review.refuse(review.uid, str(fault)), refused=str(fault))
    patch = admission_review.changes_patch(body, changes)
    return Answer(body=admission_review.allow(review.uid, patch=patch))


def _grouped(pod: Pod, changes: Mapping[tuple[str, ...], Any]) -> Pod:
    """Return the pod with its new labels and annotations, by which a StatefulSet gives it its group."""
    labels = changes.get(("metadata", "labels"), pod.labels)
    return replace(pod, labels=labels, annotations=changes.get(("metadata", "annotations"), pod.annotations))


def _answer_job(review: AdmissionRequest, around: Surroundings) -> Answer:
    job = to_job(_decoded(review, JobObject))
    return _answer_queued(review, around, job, suspend=SUSPEND, templates=(_JOB_TEMPLATE,))


def _answer_owner(row: OwnerKind, review: AdmissionRequest, around: Surroundings) -> Answer:
    try:
        owner = to_owner(row, _decoded(review, OwnerObject))
    except ValueError as error:
        raise HttpError(400, str(error)) from error
    body = _object(review.object)
    if row.is_left_alone(body):
        patch = _submitter(review, owner, body, is_queued=False)
        return Answer(body=admission_review.allow(review.uid, patch=patch))
    additions = _additions(row, body)
    templates = _template_paths(row, body)
    return _answer_queued(
        review, around, owner, suspend=row.suspend, templates=templates, additions=additions
    )


def _answer_queued(
    review: AdmissionRequest,
    around: Surroundings,
    job: QueuedJob,
    *,
    suspend: tuple[str, ...],
    templates: Sequence[Path],
    additions: Mapping[tuple[str, ...], object] | None = None,
) -> Answer:
    """Add the defaults of an object that is started and stopped as a whole.

    `templates` are the paths of the pod templates that get a gate if it is elastic.
    """
    body = _object(review.object)
    parent = around.parent
    if parent is not None and not is_counted(parent, kind=review.kind.kind, name=job.name, body=body):
        parent = None
    if parent is not None:
        # Its quota is that of its parent, and it needs no queue.
        defaults = JobDefaults(labels={}, suspends=parent.waits and not job.is_suspended)
        additions = {}
    else:
        defaults = job_defaults(job, _context(around, body), has_default_queue=around.has_default_queue)
    patch = admission_review.labels_patch(body, defaults.labels)
    if defaults is not NO_DEFAULTS:
        patch += admission_review.changes_patch(body, additions or {})
    if defaults.suspends:
        # `add` replaces an existing value: a Job may say suspend: false.
        patch.append(admission_review.addition(body, suspend, True))
    is_queued = bool(job.queue_name or defaults.labels or around.manages_without_queue_name)
    if around.has_slices and is_queued and job.asks_to_be_elastic:
        patch += _gates(body, templates)
    # A controller creates what its parent counts, whose annotations it may copy.
    if parent is None:
        patch += _submitter(review, job, body, is_queued=is_queued)
    return Answer(body=admission_review.allow(review.uid, patch=patch))


def _submitter(
    review: AdmissionRequest, job: QueuedJob, body: Body, *, is_queued: bool
) -> list[dict[str, Any]]:
    """Return the steps of a JSON patch that record who creates the object, as the API server knows it.

    What is not queued may be so later, so a name that its manifest brings is overwritten there too.
    """
    if not (is_queued or keys.SUBMITTER in job.annotations):
        return []
    path = ("metadata", "annotations", keys.SUBMITTER)
    return [admission_review.addition(body, path, review.user_info.username)]


def _template_paths(row: OwnerKind, body: Body) -> list[Path]:
    """Return where an object that may be elastic has its pod templates, as far as they can be read."""
    try:
        return [one.at for one in read_pod_sets(row, body)] if row.may_be_elastic else []
    except ComposeError:
        return []


def _gates(body: Body, templates: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the steps of a JSON patch that put a gate on the pods of an elastic Job."""
    patch = []
    for path in templates:
        spec = value_at(body, (*path, "spec"))
        gates = (spec or {}).get("schedulingGates") or []
        if spec is not None and all(one.get("name") != keys.ELASTIC_GATE for one in gates):
            where = admission_review.pointer(*map(str, path), "spec", "schedulingGates")
            patch.append({"op": "add", "path": where, "value": [*gates, {"name": keys.ELASTIC_GATE}]})
    return patch


def _additions(row: OwnerKind, body: Body) -> Mapping[tuple[str, ...], object]:
    try:
        return row.additions(body)
    except (AttributeError, KeyError, TypeError):
        # It cannot be read, which its composition reports.
        return {}


def is_counted(parent: Parent, *, kind: str, name: str, body: Body) -> bool:
    """Return whether a new object is counted by the owner that it names as its controller."""
    row, child = row_of_kind(parent.kind), Child(kind=kind, name=name, body=body, limits=parent.limits)
    return not parent.raw or (row is not None and counts(row, msgspec.json.decode(parent.raw), child))


def _context(around: Surroundings, body: Body) -> JobContext:
    """Return what the defaults of a Job or pod of the namespace, which is `body`, may ask for."""
    return JobContext(
        injection=_no_injection,
        settings=JobSettings(
            manages_without_queue_name=around.manages_without_queue_name,
            queues_plain_pods=around.queues_plain_pods,
            has_class_defaults=around.has_default_class,
        ),
        is_namespace_managed=lambda _: around.is_managed,
        is_pod_selected=lambda _, labels: (
            around.selects_pods and matches_selector(around.pod_selector, labels)
        ),
        pod_owner=lambda pod: _pod_owner(pod, around, body),
        workload_priority_classes={DEFAULT_NAME: 0} if around.has_default_class else {},
    )


def _no_injection(_: object) -> Never:
    raise AssertionError("a review starts no pods")


def _pod_owner(pod: Pod, around: Surroundings, body: Body) -> PodOwner:
    """Return whether what a new pod names as its controller waits for the pod."""
    parent = around.parent
    if parent is None:
        return _owned_by_job(pod, around.owner)
    # One that is not known yet, or whose admission is not, may be known in a moment.
    if parent.waits:
        return PodOwner.UNKNOWN
    is_own = is_counted(parent, kind=POD_KIND, name=pod.name, body=body)
    return PodOwner.COUNTED if is_own else PodOwner.NOT_COUNTED


def _owned_by_job(pod: Pod, job: OwnerJob | None) -> PodOwner:
    """Return whether the Job that a new pod names waits for the pod.

    It does if the Job controller may have created the pod: it creates pods only for an unfinished Job of
    its own, with labels that the Job's selector matches. Of those it deletes all that are too many. It
    gives up a pod that does not match, and does not look at a finished Job nor at another controller's.
    """
    if pod.owner is None or not claims_job(pod.owner):
        return PodOwner.NONE
    if job is None:
        return PodOwner.UNKNOWN
    is_same = (job.namespace, job.name) == (pod.namespace, pod.owner.name)
    if is_same and job.gets_pods and matches_selector(job.selector, pod.labels):
        return PodOwner.COUNTED
    return PodOwner.NOT_COUNTED


# --- /validate -----------------------------------------------------------------------------------


def _errors(
    review: AdmissionRequest, around: Surroundings, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[FieldError, ...]:
    row = kind_of(f"{review.kind.group}/{review.kind.version}", review.kind.kind)
    if review.operation is Operation.CREATE:
        return validate(new) if row is None else validate_owner(row, new)
    # An object that is being deleted is not checked, so that its deletion can finish.
    if (new.get("metadata") or {}).get("deletionTimestamp"):
        return ()
    if row is not None and row.update_gate in around.gates_off and not _is_queued(new, around):
        return ()
    errors = validate_update(old, new) if row is None else validate_owner_update(row, old, new)
    if _GROUP_SIZE_GATE in around.gates_off:
        errors = tuple(error for error in errors if error.path != GROUP_SIZE)
    # Only in a namespace with a default queue, which would queue the Job again at once: removing the
    # label would have no effect.
    if (row is not None or _kind(review) == ("batch", "Job")) and around.has_default_queue:
        errors = (*errors, *_removed_queue(old, new))
    return errors


def _is_queued(body: Mapping[str, Any], around: Surroundings) -> bool:
    labels = (body.get("metadata") or {}).get("labels") or {}
    return around.manages_without_queue_name or bool(labels.get(keys.QUEUE_NAME))


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


# --- both ----------------------------------------------------------------------------------------


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
