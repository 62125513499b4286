"""Jobs in files become the Workloads that a cluster would create for them; what is left out is said."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from admission.cli.common.manifest_files import Manifest
from admission.cli.common.manifest_loader import READERS
from admission.reconcile.job.context import JobContext, PriorityClass
from admission.reconcile.job.submission import is_translated, submission_of
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES
from api.objects.common import Meta
from api.specs import object_name

_CLASSES = ("WorkloadPriorityClass", "PriorityClass")


async def priority_classes(client: KubeClient) -> list[Manifest]:
    """Return the cluster's priority classes, as far as they may be read."""
    found = []
    for kind in (WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES):
        try:
            items = msgspec.json.decode(await client.request("GET", kind.path())).get("items") or ()
        except (Forbidden, NotFound):
            continue
        found += [Manifest(client.server, msgspec.json.encode({**one, "kind": kind.kind})) for one in items]
    return found


def translated(
    manifests: Iterable[Manifest], *, namespace: str, now: float
) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the objects that an engine takes, with a Workload for each Job, and a sentence for each other.

    A Job whose Workload is among the objects is not translated again. `namespace` is used where an object of
    a namespaced kind names none; `now` is in Unix seconds.
    """
    documents = [msgspec.json.decode(one.raw) for one in manifests]
    context, owned = _context(documents), _owned(documents)
    objects: list[bytes] = []
    notes: list[str] = []
    for document in documents:
        kind, meta = str(document.get("kind", "")), _meta(document)
        name = object_name(kind, meta)
        if is_translated(document):
            if (meta.namespace or namespace, kind, meta.name) in owned:
                continue
            found, problems = _submitted(document, context, namespace, now)
            objects += found
            notes += [f"{name}: {one}" for one in problems]
        elif kind in READERS:
            objects.append(msgspec.json.encode(document))
        elif kind not in _CLASSES:
            notes.append(f"{name} is left out: decisions do not depend on this kind")
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
            classes[_meta(one).name] = value
        elif isinstance(value, int) and one.get("kind") == "PriorityClass":
            is_default = one.get("globalDefault") is True
            pod_classes[_meta(one).name] = PriorityClass(value=value, is_global_default=is_default)
    return JobContext(
        injection=lambda _: ({}, ()), workload_priority_classes=classes, priority_classes=pod_classes
    )


def _owned(documents: Iterable[dict[str, object]]) -> set[tuple[str, str, str]]:
    owners = set()
    for one in documents:
        meta = _meta(one)
        if one.get("kind") == "Workload" and meta.controller is not None:
            owners.add((meta.namespace, meta.controller.kind, meta.controller.name))
    return owners


def _meta(document: dict[str, object]) -> Meta:
    try:
        return msgspec.convert(document.get("metadata") or {}, type=Meta)
    except msgspec.ValidationError:
        # The reader of its kind says what is wrong.
        return Meta()
