"""The pod template of a Workload: the fields that admission reads are typed, all others are kept unchanged.

Kueue's CRD contains the whole of core/v1 PodTemplateSpec, some 8,000 lines that become outdated with every
release of Kubernetes. Admission reads requests, selectors, tolerations and the like, so only those are typed
here. The objects are open (`x-kubernetes-preserve-unknown-fields`), so every other field of a template is
stored unchanged. The disadvantage is that a misspelt field of the pod is not reported on the Workload, but
only when the Job controller creates pods and the API server validates them.
"""

from typing import Annotated

from api.models.common import OpenModel, Quantity
from api.models.markers import ATOMIC, list_map


class TemplateMeta(OpenModel):
    """Metadata of the pods."""

    annotations: dict[str, str] | None = None
    """Annotations of the pods, for example topology requests and checkpoint settings."""
    labels: dict[str, str] | None = None
    """Labels of the pods."""


class ResourceRequirements(OpenModel):
    """Resources that a container or pod requests, and their limits."""

    limits: dict[str, Quantity] | None = None
    """Maximum amount that may be used."""
    requests: dict[str, Quantity] | None = None
    """Amount that must be free on the node; an absent entry defaults to the limit."""


class Container(OpenModel):
    """A container of the pods."""

    name: str
    """Name within the pod."""
    image: str | None = None
    """Container image."""
    resources: ResourceRequirements | None = None
    """Requests and limits."""
    restart_policy: str | None = None
    """Always, on an init container, makes it a sidecar, which runs beside the others and
    is counted with them."""


class OpenObject(OpenModel):
    """An object of core/v1 that is stored as it is and interpreted where it is used."""


class PodSpec(OpenModel):
    """The fields of a pod that decide where it may run and which resources it uses."""

    affinity: OpenObject | None = None
    """Affinity of the pods; its node affinity decides which flavors match."""
    containers: Annotated[list[Container], list_map("name")]
    """Containers that run together."""
    init_containers: Annotated[list[Container], list_map("name")] | None = None
    """Containers that run before the others."""
    node_selector: dict[str, str] | None = None
    """Labels that the node must have."""
    overhead: dict[str, Quantity] | None = None
    """Resources that the pod uses in addition to its containers."""
    priority_class_name: str | None = None
    """PriorityClass of the pods."""
    resources: ResourceRequirements | None = None
    """Requests and limits of the pod as a whole."""
    runtime_class_name: str | None = None
    """RuntimeClass, which may add overhead."""
    tolerations: Annotated[list[OpenObject], ATOMIC] | None = None
    """Taints that the pods tolerate."""


class PodTemplate(OpenModel):
    """Template of the pods of one pod set."""

    metadata: TemplateMeta | None = None
    """Labels and annotations of the pods."""
    spec: PodSpec | None = None
    """Specification of the pods."""
