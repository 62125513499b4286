"""Jobs and pods that are not submitted become the Workloads that a cluster would create for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from admission.answers.manifest_loader import READERS
from admission.reconcile.job.context import JobContext, PriorityClass
from admission.reconcile.job.submission import is_translated, submission_of
from admission.reconcile.pod.submission import is_waiting_pod, submissions_of_pods
from api.jobs.pod import to_pod
from api.objects.cluster import PodObject
from api.objects.common import Meta
from api.specs import object_name

Document = dict[str, Any]
_CLASSES = ("WorkloadPriorityClass", "PriorityClass")


def translated(
    documents: Sequence[Document], *, namespace: str, now: float, context: JobContext | None = None
) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the objects that an engine takes, with a Workload for each Job, and a sentence for each other.

    The pods of a group get one Workload together. What has its Workload among the objects is not translated
    again. `namespace` is used where an object of a namespaced kind names none; `now` is in Unix seconds.
    `context` None: the documents hold all that Jobs depend on, such as priority classes.
    """
    context, owned = context or _context(documents), _owned(documents)
    objects: list[bytes] = []
    notes: list[str] = []
    pods: list[Document] = []
    for document in documents:
        kind, meta = str(document.get("kind", "")), meta_of(document)
        name = object_name(kind, meta)
        if is_translated(document):
            if (meta.namespace or namespace, kind, meta.name) in owned:
                continue
            found, problems = _submitted(document, context, namespace, now)
            objects += found
            notes += [f"{name}: {one}" for one in problems]
        elif is_waiting_pod(document) and not _is_counted(document, owned, namespace):
            pods.append(document)
        elif kind in READERS:
            objects.append(msgspec.json.encode(document))
        elif kind not in _CLASSES:
            notes.append(f"{name} is left out: decisions do not depend on this kind")
    for one in submissions_of_pods(pods, context, namespace=namespace, now=now):
        objects += [one.workload] if one.workload is not None else []
        notes += one.notes
    return objects, tuple(notes)


def _submitted(
    document: dict[str, object], context: JobContext, namespace: str, now: float
) -> tuple[list[bytes], tuple[str, ...]]:
    try:
        found = submission_of(document, context, namespace=namespace, now=now)
    except ValueError as error:
        return [], (str(error),)
    return ([found.workload] if found.workload is not None else []), found.notes


def _context(documents: Iterable[dict[str, object]]) -> JobContext:
    classes: dict[str, int] = {}
    pod_classes: dict[str, PriorityClass] = {}
    for one in documents:
        value = one.get("value")
        if isinstance(value, int) and one.get("kind") == "WorkloadPriorityClass":
            classes[meta_of(one).name] = value
        elif isinstance(value, int) and one.get("kind") == "PriorityClass":
            is_default = one.get("globalDefault") is True
            pod_classes[meta_of(one).name] = PriorityClass(value=value, is_global_default=is_default)
    return JobContext(
        injection=lambda _: ({}, ()), workload_priority_classes=classes, priority_classes=pod_classes
    )


def _owned(documents: Iterable[dict[str, object]]) -> set[tuple[str, str, str]]:
    """Return what has its Workload among the objects: owners by kind, and Workloads, for groups of pods."""
    owners = set()
    for one in documents:
        meta = meta_of(one)
        if one.get("kind") == "Workload":
            owners.add((meta.namespace, "Workload", meta.name))
            if meta.controller is not None:
                owners.add((meta.namespace, meta.controller.kind, meta.controller.name))
    return owners


def _is_counted(pod: Document, owned: set[tuple[str, str, str]], namespace: str) -> bool:
    meta = meta_of(pod)
    group = to_pod(msgspec.convert(pod, PodObject)).group
    where = meta.namespace or namespace
    return (where, "Pod", meta.name) in owned or bool(group and (where, "Workload", group) in owned)


def meta_of(document: dict[str, object]) -> Meta:
    """Return the metadata of an object, empty if it cannot be read."""
    try:
        return msgspec.convert(document.get("metadata") or {}, type=Meta)
    except msgspec.ValidationError:
        # The reader of its kind says what is wrong.
        return Meta()
