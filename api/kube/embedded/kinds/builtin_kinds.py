"""The built-in kinds that the server serves from the start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from api.kube.embedded.apply.builtin_types import Decoder, builtin_schema
from api.kube.embedded.apply.schema import JsonObject, Schema
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.columns import COLUMNS
from api.kube.embedded.kinds.crds import CrdStrategy
from api.kube.embedded.kinds.defaults import Defaulter
from api.kube.embedded.kinds.events import EVENT_FIELDS, to_core_event, to_events_event
from api.kube.embedded.kinds.jobs import JobStrategy
from api.kube.embedded.kinds.kinds import Decoded, Kind, Strategy
from api.kube.embedded.kinds.pods import PodStrategy
from api.kube.embedded.kinds.strategies import (
    ApiServiceStrategy,
    ClaimStrategy,
    ConfigMapStrategy,
    CountedStrategy,
    CreatedByPutStrategy,
    CronJobStrategy,
    DisruptionBudgetStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PathNameStrategy,
    PriorityClassStrategy,
    QuotaStrategy,
    RuntimeClassStrategy,
    SecretStrategy,
    ServiceStrategy,
    StatusStrategy,
    WebhookStrategy,
)
from api.kube.embedded.store import Collection, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of the table below. `type` is the name of the kind in builtin_types.txt, if it differs."""

    group: str = ""
    kind: str
    strategy: Callable[[], Strategy] = Strategy
    namespaced: bool = True
    short: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[str] = ()
    selectable: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    type: str = ""

    @property
    def plural(self) -> str:
        """The name of the kind in URLs, as Kubernetes forms it for these kinds."""
        return f"{self.kind.lower()}{'es' if self.kind.endswith('s') else 's'}"


_STATUS: Final = ("status",)
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_RBAC: Final = "rbac.authorization.k8s.io"


def _pod_controller(kind: str, short: str) -> _Row:
    return _Row(
        group="apps",
        kind=kind,
        strategy=StatusStrategy,
        short=(short,),
        categories=("all",),
        subresources=_STATUS,
    )


def _webhook_configuration(kind: str) -> _Row:
    return _Row(
        group="admissionregistration.k8s.io",
        kind=kind,
        strategy=WebhookStrategy,
        namespaced=False,
        categories=("api-extensions",),
    )


_ROWS: Final = (
    _Row(
        kind="Namespace",
        strategy=NamespaceStrategy,
        namespaced=False,
        short=("ns",),
        subresources=("status", "finalize"),
        selectable=("status.phase",),
    ),
    _Row(
        kind="Node",
        strategy=NodeStrategy,
        namespaced=False,
        short=("no",),
        subresources=_STATUS,
        selectable=("spec.unschedulable",),
    ),
    _Row(
        kind="Pod",
        strategy=PodStrategy,
        short=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction"),
        selectable=_POD_FIELDS,
    ),
    _Row(
        kind="Event",
        strategy=CreatedByPutStrategy,
        short=("ev",),
        selectable=EVENT_FIELDS,
        aliases={"source": "source.component"},
    ),
    _Row(kind="ConfigMap", strategy=ConfigMapStrategy, short=("cm",)),
    _Row(kind="Secret", strategy=SecretStrategy, selectable=("type",)),
    _Row(kind="ServiceAccount", short=("sa",), subresources=("token",)),
    _Row(
        kind="Service",
        strategy=ServiceStrategy,
        short=("svc",),
        categories=("all",),
        subresources=_STATUS,
    ),
    _Row(
        kind="PersistentVolumeClaim",
        strategy=ClaimStrategy,
        short=("pvc",),
        subresources=_STATUS,
    ),
    _Row(kind="LimitRange", strategy=CreatedByPutStrategy, short=("limits",)),
    _Row(
        kind="ResourceQuota",
        strategy=QuotaStrategy,
        short=("quota",),
        subresources=_STATUS,
    ),
    _Row(kind="PodTemplate", strategy=CountedStrategy),
    _Row(
        group="batch",
        kind="Job",
        strategy=JobStrategy,
        categories=("all",),
        subresources=_STATUS,
        selectable=("status.successful",),
        aliases={"status.successful": "status.succeeded"},
    ),
    _Row(
        group="batch",
        kind="CronJob",
        strategy=CronJobStrategy,
        short=("cj",),
        categories=("all",),
        subresources=_STATUS,
    ),
    _pod_controller("Deployment", "deploy"),
    _pod_controller("ReplicaSet", "rs"),
    _pod_controller("StatefulSet", "sts"),
    _pod_controller("DaemonSet", "ds"),
    _Row(group="coordination.k8s.io", kind="Lease", strategy=LeaseStrategy),
    _Row(
        group="scheduling.k8s.io",
        kind="PriorityClass",
        strategy=PriorityClassStrategy,
        namespaced=False,
        short=("pc",),
    ),
    _Row(
        group="node.k8s.io",
        kind="RuntimeClass",
        strategy=RuntimeClassStrategy,
        namespaced=False,
    ),
    _Row(
        group="policy",
        kind="PodDisruptionBudget",
        strategy=DisruptionBudgetStrategy,
        short=("pdb",),
        subresources=_STATUS,
    ),
    _Row(
        group="apiextensions.k8s.io",
        kind="CustomResourceDefinition",
        strategy=CrdStrategy,
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
    _Row(
        group="apiregistration.k8s.io",
        kind="APIService",
        strategy=ApiServiceStrategy,
        namespaced=False,
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
    _Row(group=_RBAC, kind="Role", strategy=PathNameStrategy),
    _Row(group=_RBAC, kind="RoleBinding", strategy=PathNameStrategy),
    _Row(group=_RBAC, kind="ClusterRole", strategy=PathNameStrategy, namespaced=False),
    _Row(
        group=_RBAC,
        kind="ClusterRoleBinding",
        strategy=PathNameStrategy,
        namespaced=False,
    ),
    _webhook_configuration("MutatingWebhookConfiguration"),
    _webhook_configuration("ValidatingWebhookConfiguration"),
)
_EVENTS_VIEW: Final = _Row(
    group="events.k8s.io",
    kind="Event",
    strategy=CreatedByPutStrategy,
    short=("ev",),
    selectable=("reason", "type"),
    type="events.Event",
)


def serve_builtin_kinds(store: ObjectStore, catalog: Catalog) -> None:
    """Add every built-in kind to the catalog."""
    for row in _ROWS:
        catalog.add(_kind(row, store.collection(row.group, row.plural)))
    # events.k8s.io/v1 is a view of the events in the core group.
    events = _kind(_EVENTS_VIEW, store.collection("", "events"))
    catalog.add(replace(events, to_stored=to_core_event, from_stored=to_events_event))


def _kind(row: _Row, collection: Collection) -> Kind:
    schema = builtin_schema(row.type or row.kind)
    api_version = f"{row.group}/v1" if row.group else "v1"
    strategy = row.strategy()
    empty = {"apiVersion": api_version, "kind": row.kind, **Decoder(schema).empty()}
    strategy.blank_status = empty.get("status", {})
    return Kind(
        group=row.group,
        version="v1",
        plural=row.plural,
        kind=row.kind,
        namespaced=row.namespaced,
        collection=collection,
        schema=schema,
        strategy=strategy,
        decode=_decoder(schema),
        fill=_filler(schema, strategy),
        empty=empty,
        singular=row.kind.lower(),
        list_kind=f"{row.kind}List",
        short_names=row.short,
        categories=row.categories,
        subresources=row.subresources,
        columns=COLUMNS.get(row.plural, ()),
        selectable=row.selectable,
        selectable_aliases=row.aliases,
    )


def _decoder(schema: Schema) -> Callable[[JsonObject], Decoded]:
    decoder = Decoder(schema)

    def decode(body: JsonObject) -> Decoded:
        item = decoder.decode(body)
        return Decoded(item, tuple(decoder.unknown))

    return decode


def _filler(schema: Schema, strategy: Strategy) -> Callable[[JsonObject], None]:
    defaulter = Defaulter(schema)

    def fill(item: JsonObject) -> None:
        defaulter.fill(item)
        strategy.fill(item)

    return fill
