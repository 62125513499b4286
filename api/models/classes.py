"""WorkloadPriorityClass and AdmissionCheck: what a Workload refers to by name."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import Conditions, DnsLabel, DnsSubdomain, Int32, KueueObject, Model
from api.models.markers import FROZEN


class WorkloadPriorityClass(KueueObject):
    """A priority for Workloads that leaves the priority of their pods alone."""

    kind: Literal["WorkloadPriorityClass"] = "WorkloadPriorityClass"
    description: Annotated[str, Field(max_length=2048)] | None = None
    """What the class is meant for."""
    value: Int32
    """Priority of the Workloads that name this class; higher goes first. A change reaches Workloads that
    exist already."""


class AdmissionCheckParameters(Model):
    """Names the object with the settings of a check."""

    api_group: Annotated[DnsSubdomain, Field(min_length=1)]
    """API group of that object."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")]
    """Kind of that object."""
    name: Annotated[DnsLabel, Field(min_length=1)]
    """Name of that object."""


class AdmissionCheckSpec(Model):
    """Who evaluates the check."""

    controller_name: Annotated[str, Field(min_length=1, max_length=253), FROZEN]
    """Controller that sets the state of this check on Workloads; not a pod or Deployment. Immutable."""
    parameters: AdmissionCheckParameters | None = None
    """Cluster-scoped object with settings for that controller."""


class AdmissionCheckStatus(Model):
    """Observed state of an AdmissionCheck."""

    conditions: Conditions | None = None
    """Active: whether the check can be evaluated. While it cannot, its ClusterQueues admit nothing new."""


class AdmissionCheck(KueueObject):
    """Something that must be ready, besides quota, before a Workload starts."""

    kind: Literal["AdmissionCheck"] = "AdmissionCheck"
    spec: AdmissionCheckSpec
    """Who evaluates the check."""
    status: AdmissionCheckStatus | None = None
    """Observed state."""
