"""The rights that the controller uses at the API server, beside what deploy/ grants.

Reads follow from what is watched and written, the rest is listed here. A write that is not listed fails in
the fakes that carry writes out (`check`), so that a new one cannot be forgotten in deploy/rbac.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from admission.cache.in_use import KEPT_KINDS
from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.kinds import topology_kinds, watched_kinds
from admission.controller.loop.status_writer import KINDS as STATUS_KINDS
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.writer.requests import request_of
from admission.decisions.api_writes import Purpose, Verb, Write
from admission.engine.engine import Engine
from api.jobs.owners.table import OWNER_KINDS
from api.kube import resources
from api.kube.report_budget import WriteLoad
from api.kube.resources import Resource
from tests.admission.controller.known import Known

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

# Kind, verb and subresource of every write that the loop sends.
WRITTEN = frozenset(
    {
        ("Workload", Verb.CREATE, ""),
        ("Workload", Verb.MERGE_PATCH, ""),
        ("Workload", Verb.REPLACE, "status"),
        ("Workload", Verb.DELETE, ""),
        ("Job", Verb.MERGE_PATCH, ""),
        ("Job", Verb.MERGE_PATCH, "status"),
        ("Job", Verb.DELETE, ""),
        ("Pod", Verb.MERGE_PATCH, ""),
        ("Pod", Verb.STRATEGIC_PATCH, "status"),
        ("Pod", Verb.DELETE, ""),
        ("Pod", Verb.EVICT, ""),
        *((row.kind, verb, "") for row in OWNER_KINDS for verb in (Verb.MERGE_PATCH, Verb.DELETE)),
        ("PodTemplate", Verb.CREATE, ""),
        ("PodTemplate", Verb.MERGE_PATCH, ""),
        ("ProvisioningRequest", Verb.CREATE, ""),
        ("ProvisioningRequest", Verb.DELETE, ""),
        *((kind, Verb.REPLACE, "status") for kind in STATUS_KINDS),
        *((kind, Verb.MERGE_PATCH, "") for kind in KEPT_KINDS),
    }
)

_NAMESPACED = {
    "Workload",
    "Job",
    "Pod",
    "LocalQueue",
    "PodTemplate",
    "ProvisioningRequest",
    *(row.kind for row in OWNER_KINDS),
}


class Right(NamedTuple):
    """What RBAC grants: a verb on a resource, which is `plural` or `plural/subresource`."""

    group: str
    resource: str
    verb: str


def _on(resource: Resource, *verbs: str) -> frozenset[Right]:
    return frozenset(Right(resource.group, resource.plural, verb) for verb in verbs)


# In the controller's own namespace: the election, and the certificate that all replicas serve.
USED_AT_HOME = _on(resources.LEASES, "get", "create", "update") | _on(
    resources.SECRETS, "get", "create", "update"
)

# Requests that are neither a watch nor a write of the loop.
_DIRECT = (
    # Whether its own namespace is there.
    _on(resources.NAMESPACES, "get")
    # Which fields the definitions of its kinds lack, and the caBundle of those that are converted.
    | _on(resources.CRDS, "get", "list", "watch", "patch")
    # Whether a Kueue is alive, and which nodes are.
    | _on(resources.LEASES, "list", "watch")
    | _on(resources.EVENTS, "create", "patch")
    # The token that a report of a checkpoint comes with, and the pod that it names.
    | {Right("authentication.k8s.io", "tokenreviews", "create")}
    # Whether the user of a token may read /v1 or /metrics.
    | {Right("authorization.k8s.io", "subjectaccessreviews", "create")}
    | _on(resources.PODS, "get")
    # The caBundle of those that lead here.
    | _on(resources.VALIDATING_WEBHOOKS, "list", "watch", "patch")
    | _on(resources.MUTATING_WEBHOOKS, "list", "watch", "patch")
    | _on(resources.API_SERVICES, "list", "watch", "patch")
    # A Workload names its Job, pod or other owner with blockOwnerDeletion.
    | {Right("batch", "jobs/finalizers", "update"), Right("", "pods/finalizers", "update")}
    | {Right(row.group, f"{row.plural}/finalizers", "update") for row in OWNER_KINDS}
)


def used_everywhere(settings: ClusterStateSettings) -> frozenset[Right]:
    """Return what a controller of these settings uses in all namespaces."""
    return frozenset({*_watched(settings), *map(_right_of, _writes()), *_read_back(), *_DIRECT})


def check(write: Write) -> None:
    """Fail where a write is of a sort that no right is listed for."""
    sort = (write.kind, write.verb, write.subresource)
    assert sort in WRITTEN, (
        f"{write.purpose}: list {sort} in tests/rights.py and grant it in deploy/rbac.yaml"
    )


def granted(rules: Iterable[Mapping[str, Any]]) -> frozenset[Right]:
    """Return the rights of a role's rules, whatever names they are bound to."""
    return frozenset(
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def _watched(settings: ClusterStateSettings) -> Iterator[Right]:
    state = Known(settings=settings).cluster_state
    board = StatusWriter(Engine(), WriteLoad(), with_share=False, is_busy=lambda _: False)
    for kind in (*watched_kinds(state, board, QueueSeries()), *topology_kinds(state)):
        yield from _on(kind.resource, "list", "watch")


def _writes() -> Iterator[Write]:
    for kind, verb, subresource in WRITTEN:
        namespace = "team" if kind in _NAMESPACED else ""
        yield Write(
            verb=verb,
            kind=kind,
            namespace=namespace,
            name="one",
            subresource=subresource,
            body=b"",
            purpose=Purpose.PLAN,
        )


def _right_of(write: Write) -> Right:
    method, path, _ = request_of(write)
    # /api/v1/... or /apis/GROUP/VERSION/..., then the namespace if there is one.
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    rest = rest[2:] if rest[0] == "namespaces" else rest
    return Right(group, "/".join([rest[0], *rest[2:]]), _VERBS[method])


def _read_back() -> Iterator[Right]:
    """Yield the reading of what a write met: a conflict, or no answer."""
    for write in _writes():
        right = _right_of(write)
        yield right._replace(resource=right.resource.partition("/")[0], verb="get")
