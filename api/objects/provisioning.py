"""ProvisioningRequests of the cluster autoscaler, the pod templates that they name, and their settings."""

from __future__ import annotations

from api.objects.common import Meta, Wire, WireCondition


class WireNodeSelectorUpdate(Wire, frozen=True):
    """ProvisioningRequestConfig.spec.podSetUpdates.nodeSelector[]."""

    key: str
    value_from_provisioning_class_detail: str


class WireUpdates(Wire, frozen=True):
    """ProvisioningRequestConfig.spec.podSetUpdates."""

    node_selector: tuple[WireNodeSelectorUpdate, ...] | None = None


class WireRetryStrategy(Wire, frozen=True):
    """ProvisioningRequestConfig.spec.retryStrategy, with the defaults of its definition."""

    backoff_limit_count: int = 3
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 1800


class ProvisioningConfigSpec(Wire, frozen=True):
    """ProvisioningRequestConfig.spec."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None
    managed_resources: tuple[str, ...] | None = None
    retry_strategy: WireRetryStrategy | None = None
    pod_set_updates: WireUpdates | None = None
    pod_set_merge_policy: str | None = None


class ProvisioningConfigObject(Wire, frozen=True):
    """kueue.x-k8s.io ProvisioningRequestConfig."""

    metadata: Meta
    spec: ProvisioningConfigSpec = ProvisioningConfigSpec()


class WireTemplateReference(Wire, frozen=True):
    """ProvisioningRequest.spec.podSets[].podTemplateRef."""

    name: str = ""


class WireRequestedPodSet(Wire, frozen=True):
    """ProvisioningRequest.spec.podSets[]."""

    pod_template_ref: WireTemplateReference = WireTemplateReference()
    count: int = 0


class ProvisioningRequestSpec(Wire, frozen=True):
    """ProvisioningRequest.spec, which is immutable."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None
    pod_sets: tuple[WireRequestedPodSet, ...] = ()


class ProvisioningRequestStatus(Wire, frozen=True):
    """ProvisioningRequest.status, which the autoscaler writes."""

    conditions: tuple[WireCondition, ...] | None = None
    provisioning_class_details: dict[str, str] | None = None


class ProvisioningRequestObject(Wire, frozen=True):
    """autoscaling.x-k8s.io ProvisioningRequest."""

    metadata: Meta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
