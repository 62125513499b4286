"""ProvisioningRequestConfig: how a check asks the cluster's autoscaler for nodes."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import DnsSubdomain, Int32, KueueObject, LabelKey, Model
from api.models.markers import SET, list_map


class NodeSelectorUpdate(Model):
    """A node label of the provisioned nodes, whose value the autoscaler reports."""

    key: Annotated[LabelKey, Field(min_length=1, max_length=317)]
    """Key of the node selector that the pods get."""
    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """Key in status.provisioningClassDetails of the ProvisioningRequest that has the value."""


class PodSetUpdates(Model):
    """What pods get when their nodes are provisioned."""

    node_selector: Annotated[list[NodeSelectorUpdate], Field(max_length=8), list_map("key")] | None = None
    """Node selectors that keep the pods on the nodes that were provisioned for them."""


class RetryStrategy(Model):
    """How often and when a request that failed is made again."""

    backoff_limit_count: Int32 = 3
    """How often a request is made again. Then the check is Rejected and the Workload deactivated. Default 3;
    0 makes none again."""
    backoff_base_seconds: Int32 = 60
    """Delay before the first retry, in seconds; it doubles with each. Default 60."""
    backoff_max_seconds: Int32 = 1800
    """Maximum delay, in seconds. Default 1800."""


class ProvisioningRequestConfigSpec(Model):
    """What requests of this check ask for, and what is done with their answers."""

    provisioning_class_name: Annotated[DnsSubdomain, Field(min_length=1)]
    """Class of the ProvisioningRequests, such as check-capacity.autoscaling.x-k8s.io."""
    parameters: Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(max_length=100)] | None = (
        None
    )
    """Parameters that the class takes. Annotations provreq.kueue.x-k8s.io/NAME of a Workload are added."""
    managed_resources: Annotated[list[str], Field(max_length=100), SET] | None = None
    """Only pod sets that request one of these resources are part of the request. Without any such pod set the
    check is Ready at once. Absent or empty: all pod sets."""
    retry_strategy: RetryStrategy = Field(default_factory=RetryStrategy)
    """How often and when a request that failed is made again."""
    pod_set_updates: PodSetUpdates | None = None
    """What pods get when their nodes are provisioned."""
    pod_set_merge_policy: (
        Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None
    ) = None
    """Which pod sets share one pod template in the request: those with equal templates, or with equal
    requests, node selectors, tolerations, affinities and claims. Absent: none do."""


class ProvisioningRequestConfig(KueueObject):
    """Settings of AdmissionChecks that ask the cluster's autoscaler for nodes."""

    kind: Literal["ProvisioningRequestConfig"] = "ProvisioningRequestConfig"
    spec: ProvisioningRequestConfigSpec
    """What requests of this check ask for, and what is done with their answers."""
