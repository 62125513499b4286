"""The pod template inside a Workload: a typed minimum, and everything else kept as it came.

Kueue's own CRD spells out the whole of core/v1 PodTemplateSpec, some 8,000 lines that age with every release
of Kubernetes. Admission reads requests, selectors, tolerations and the like, so only those are typed here;
the objects are open (`x-kubernetes-preserve-unknown-fields`), and whatever else a template holds comes back
unchanged. The price is that a misspelt field of the pod is found when the Job controller creates pods, where
the pod's own schema refuses it, rather than on the Workload.
"""

from typing import Annotated

from api.models.common import OpenModel, Quantity
from api.models.markers import ATOMIC, list_map


class TemplateMeta(OpenModel):
    """Metadata of the pods."""

    annotations: dict[str, str] | None = None
    """Annotations of the pods; topology requests and checkpoint settings stand here."""
    labels: dict[str, str] | None = None
    """Labels of the pods."""


class ResourceRequirements(OpenModel):
    """What a container or pod asks for and may use at most."""

    limits: dict[str, Quantity] | None = None
    """Most that may be used."""
    requests: dict[str, Quantity] | None = None
    """What must be free; absent entries are taken from the limits."""


class Container(OpenModel):
    """A container of the pods."""

    name: str
    """Name within the pod."""
    image: str | None = None
    """Container image."""
    resources: ResourceRequirements | None = None
    """Requests and limits."""
    restart_policy: str | None = None
    """Always, on an init container, makes it run beside the others and count like them."""


class OpenObject(OpenModel):
    """An object of core/v1 that is kept and read where it is used."""


class PodSpec(OpenModel):
    """The parts of a pod that decide where it may run and what it uses."""

    affinity: OpenObject | None = None
    """Node affinity decides which flavors suit the pods."""
    containers: Annotated[list[Container], list_map("name")]
    """Containers that run together."""
    init_containers: Annotated[list[Container], list_map("name")] | None = None
    """Containers that run before the others."""
    node_selector: dict[str, str] | None = None
    """Labels that the node must have."""
    overhead: dict[str, Quantity] | None = None
    """Resources of the pod besides its containers."""
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
    """What the pods are."""
