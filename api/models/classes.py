"""WorkloadPriorityClass and AdmissionCheck: cluster-scoped objects that are referred to by name."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import Conditions, DnsLabel, DnsSubdomain, Int32, KueueObject, Model
from api.models.markers import FROZEN


class WorkloadPriorityClass(KueueObject):
    """A priority for Workloads that does not change the priority of their pods."""

    kind: Literal["WorkloadPriorityClass"] = "WorkloadPriorityClass"
    description: Annotated[str, Field(max_length=2048)] | None = None
    """What the class is meant for."""
    value: Int32
    """Priority of the Workloads that name this class; higher is admitted first. A change also
    applies to existing Workloads."""


class AdmissionCheckParameters(Model):
    """Reference to the object that holds the settings of a check."""

    api_group: Annotated[DnsSubdomain, Field(min_length=1)]
    """API group of that object."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")]
    """Kind of that object."""
    name: Annotated[DnsLabel, Field(min_length=1)]
    """Name of that object."""


class AdmissionCheckSpec(Model):
    """Controller that evaluates the check, and its settings."""

    controller_name: Annotated[str, Field(min_length=1, max_length=253), FROZEN]
    """Controller that sets the state of this check on Workloads; not a pod or Deployment. Immutable."""
    parameters: AdmissionCheckParameters | None = None
    """Cluster-scoped object with settings for that controller."""


class AdmissionCheckStatus(Model):
    """Observed state of an AdmissionCheck."""

    conditions: Conditions | None = None
    """Active: whether the check can be evaluated. If it is False, ClusterQueues with this
    check admit no Workload."""


class AdmissionCheck(KueueObject):
    """A condition besides quota that must be Ready before a Workload starts."""

    kind: Literal["AdmissionCheck"] = "AdmissionCheck"
    spec: AdmissionCheckSpec
    """Controller that evaluates the check, and its settings."""
    status: AdmissionCheckStatus | None = None
    """Observed state."""
