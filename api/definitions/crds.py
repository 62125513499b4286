"""The CustomResourceDefinitions that Berth serves, generated from the models.

Names, columns and subresources are the same as Kueue's, so that kubectl commands and dashboards keep working;
kinds that Kueue does not have are in the group berth.dev. v1beta2 is what is stored, so that a cluster can
read its own objects when nothing of Berth runs.

deploy/crds serves v1beta1 of Kueue's kinds as well. kube-apiserver asks the controller (/convert) for those
whose fields have other names there, and only if a client asks for v1beta1. Servers without a controller at
that address (the embedded one, those of tests) get v1beta2 alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from api.definitions.bounds import bounded
from api.definitions.older_schemas import older_path, older_schema
from api.definitions.structural_schema import structural_schema
from api.keys import KUEUE_GROUP
from api.models.admission_policy import AdmissionPolicy
from api.models.classes import AdmissionCheck, WorkloadPriorityClass
from api.models.cluster_queue import ClusterQueue
from api.models.cohort import Cohort
from api.models.local_queue import LocalQueue
from api.models.markers import RULES
from api.models.provisioning import ProvisioningRequestConfig
from api.models.resource_flavor import ResourceFlavor, Topology
from api.models.workload import Workload

BERTH_GROUP = "berth.dev"

OLDER_VERSION = "v1beta1"
# The kinds whose fields differ between the versions; the others differ in apiVersion alone.
CONVERTED_KINDS = frozenset({"ClusterQueue", "LocalQueue", "Workload"})
_WEBHOOK = {
    "clientConfig": {
        "service": {
            "name": "berth-controller",
            "namespace": "berth-system",
            "path": "/convert",
            "port": 9443,
        }
    },
    "conversionReviewVersions": ["v1"],
}
# Category that makes `kubectl get berth` list all kinds.
_CATEGORY = "berth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of `kubectl get`; if `wide`, it is shown only by `kubectl get -o wide`."""

    name: str
    path: str
    description: str
    type: str = "string"
    # Wide columns are hidden by default, to keep the table within 80 characters.
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The parts of a CustomResourceDefinition that are not in the schema of its model.

    `columns` are those before the age, which every kind shows last.
    """

    model: type[BaseModel]
    plural: str
    group: str = KUEUE_GROUP
    version: str = "v1beta2"
    namespaced: bool = False
    short_names: Sequence[str] = ()
    columns: Sequence[Column] = ()
    selectable_fields: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of the kind, such as ClusterQueue."""
        return self.model.__name__


_AGE = Column(
    name="Age", path=".metadata.creationTimestamp", type="date", description="Time since it was created"
)
_PENDING = Column(
    name="Pending Workloads",
    path=".status.pendingWorkloads",
    type="integer",
    description="Workloads that wait",
)


def _admitted_workloads(*, wide: bool) -> Column:
    return Column(
        name="Admitted Workloads",
        path=".status.admittedWorkloads",
        type="integer",
        description="Workloads that are admitted and not finished",
        wide=wide,
    )


def _condition(type_: str, description: str) -> Column:
    # A JSONPath filter selects the condition from the list; kubectl shows an empty cell if it is missing.
    return Column(
        name=type_, path=f".status.conditions[?(@.type=='{type_}')].status", description=description
    )


KINDS: tuple[Kind, ...] = (
    Kind(
        model=ClusterQueue,
        plural="clusterqueues",
        short_names=("cq",),
        columns=(
            Column(name="Cohort", path=".spec.cohortName", description="Cohort it lends to and borrows from"),
            Column(
                name="Strategy",
                path=".spec.queueingStrategy",
                description="Whether a head that does not fit blocks those behind it",
                wide=True,
            ),
            _PENDING,
            _admitted_workloads(wide=True),
        ),
    ),
    Kind(
        model=LocalQueue,
        plural="localqueues",
        namespaced=True,
        short_names=("queue", "queues", "lq"),
        columns=(
            Column(name="ClusterQueue", path=".spec.clusterQueue", description="ClusterQueue that serves it"),
            _PENDING,
            _admitted_workloads(wide=False),
        ),
    ),
    Kind(
        model=Workload,
        plural="workloads",
        namespaced=True,
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        columns=(
            Column(name="Queue", path=".spec.queueName", description="LocalQueue it waits in"),
            Column(
                name="Reserved in",
                path=".status.admission.clusterQueue",
                description="ClusterQueue whose quota it holds",
            ),
            _condition("Admitted", "Whether it may run"),
            _condition("Finished", "Whether it has ended"),
        ),
        # For `kubectl get workloads --field-selector`, and for informers that watch one ClusterQueue only.
        selectable_fields=(".status.admission.clusterQueue",),
    ),
    Kind(model=Cohort, plural="cohorts", short_names=("co",)),
    Kind(
        model=ResourceFlavor,
        plural="resourceflavors",
        short_names=("flavor", "flavors", "rf"),
    ),
    Kind(model=Topology, plural="topologies", short_names=("topo",)),
    Kind(model=AdmissionCheck, plural="admissionchecks", short_names=("ac",)),
    Kind(model=ProvisioningRequestConfig, plural="provisioningrequestconfigs", short_names=("prc",)),
    Kind(
        model=WorkloadPriorityClass,
        plural="workloadpriorityclasses",
        short_names=("wpc",),
        columns=(
            Column(name="Value", path=".value", type="integer", description="Priority of its Workloads"),
        ),
    ),
    Kind(
        model=AdmissionPolicy,
        plural="admissionpolicies",
        group=BERTH_GROUP,
        version="v1alpha1",
        short_names=("apol",),
        columns=(
            Column(
                name="Precedence", path=".spec.precedence", type="integer", description="The highest counts"
            ),
            _condition("Accepted", "Whether it is in force"),
            Column(
                name="ClusterQueues",
                path=".status.clusterQueueCount",
                type="integer",
                description="ClusterQueues that it governs",
            ),
            Column(
                name="Open windows",
                path=".status.quotasInForce[*].window",
                description="Quota windows that are open now",
            ),
            Column(
                name="Message",
                path=".status.conditions[?(@.type=='Accepted')].message",
                description="What is wrong with it, or has no effect",
                wide=True,
            ),
        ),
    ),
)
"""Every kind that Berth defines, in the order of output."""


def crd_yaml(kind: Kind, *, with_older: bool = False) -> str:
    """Return the CustomResourceDefinition of one kind as YAML."""
    return yaml.safe_dump(crd(kind, with_older=with_older), sort_keys=False, width=110, allow_unicode=True)


def crd(kind: Kind, *, with_older: bool = False) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one kind.

    `with_older`: v1beta1 of Kueue's kinds is served too.
    """
    has_older = with_older and kind.group == KUEUE_GROUP
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "conversion": _conversion(kind, has_older=has_older),
            "group": kind.group,
            "names": _names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind), *([_older_version(kind)] if has_older else ())],
        },
    }


def _conversion(kind: Kind, *, has_older: bool) -> dict[str, Any]:
    if has_older and kind.name in CONVERTED_KINDS:
        return {"strategy": "Webhook", "webhook": _WEBHOOK}
    return {"strategy": "None"}


def _names(kind: Kind) -> dict[str, Any]:
    return {
        "categories": [_CATEGORY],
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "shortNames": list(kind.short_names),
        "singular": kind.name.lower(),
    }


def _version(kind: Kind) -> dict[str, Any]:
    schema = _object_schema(kind.model)
    version: dict[str, Any] = {
        "name": kind.version,
        "additionalPrinterColumns": [_column(column) for column in (*kind.columns, _AGE)],
        "schema": {"openAPIV3Schema": schema},
        "served": True,
        "storage": True,
    }
    if kind.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable_fields]
    # Only kinds with a status get the subresource: it makes the API server drop the status from writes
    # to the main resource.
    if "status" in schema["properties"]:
        version["subresources"] = {"status": {}}
    return version


def _older_version(kind: Kind) -> dict[str, Any]:
    version = _version(kind)
    schema = older_schema(kind.name, version["schema"]["openAPIV3Schema"])
    columns = [
        {**column, "jsonPath": older_path(kind.name, column["jsonPath"])}
        for column in version["additionalPrinterColumns"]
    ]
    # The API server refuses equal selectable fields of versions whose schemas differ. Kueue has none either.
    version.pop("selectableFields", None)
    return {
        **version,
        "name": OLDER_VERSION,
        "additionalPrinterColumns": columns,
        "deprecated": True,
        "deprecationWarning": "This version is deprecated. Use v1beta2 instead.",
        "schema": {"openAPIV3Schema": schema},
        "storage": False,
    }


def _column(column: Column) -> dict[str, Any]:
    # Columns of priority 0 are always shown, all others only with -o wide.
    wide = {"priority": 1} if column.wide else {}
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
        **wide,
    }


def _object_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of the whole object.

    The API server itself defines the fields that all objects share.
    """
    schema = bounded(structural_schema(model))
    standard = {
        "apiVersion": {"type": "string", "description": "Group and version of this form of the object."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {"type": "object"},
    }
    # A CRD may restrict no more of metadata than name and generateName, so its schema is left empty.
    own = {name: child for name, child in schema["properties"].items() if name not in standard}
    rules = {RULES: schema[RULES]} if RULES in schema else {}
    return {
        "description": schema["description"],
        "type": "object",
        **({"required": schema["required"]} if "required" in schema else {}),
        "properties": {**standard, **own},
        **rules,
    }
