"""ProvisioningRequests as values: their settings, their conditions, and the names that Kueue gives them.

A check of the controller `kueue.x-k8s.io/provisioning-request` asks the cluster's autoscaler for the nodes of
a Workload: one ProvisioningRequest for each attempt, which names a PodTemplate for each of its pod sets. The
names follow from those of Workload, check and attempt, so that a request is found again after a changeover.
Source: Kueue, pkg/controller/admissionchecks/provisioning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api import keys
from api.objects.provisioning import ProvisioningConfigObject, ProvisioningRequestObject, WireRetryStrategy
from api.parsing.problems import SpecError, read_word
from api.queueing import CheckParameters
from api.workload import NOTHING, Condition
from api.workload_decoding import to_conditions

CONFIG_KIND = "ProvisioningRequestConfig"
REQUEST_VERSION, REQUEST_KIND = "autoscaling.x-k8s.io/v1", "ProvisioningRequest"
TEMPLATE_KIND = "PodTemplate"
_MAX_NAME = 253
_HASH_LENGTH = 5
_MAX_PREFIX = _MAX_NAME - _HASH_LENGTH - 1
# Attempts of one check whose names are too long to show their number. Each costs a hash to find out.
_MOST_ATTEMPTS = 64


class MergePolicy(StrEnum):
    """Which pod sets share one pod template in a request. NONE: each has its own."""

    NONE = ""
    IDENTICAL_TEMPLATES = "IdenticalPodTemplates"
    IDENTICAL_REQUIREMENTS = "IdenticalWorkloadSchedulingRequirements"


class Outcome(StrEnum):
    """The conditions of a ProvisioningRequest, the one that counts first."""

    FAILED = "Failed"
    CAPACITY_REVOKED = "CapacityRevoked"
    BOOKING_EXPIRED = "BookingExpired"
    PROVISIONED = "Provisioned"
    ACCEPTED = "Accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningConfig:
    """A ProvisioningRequestConfig. Times are in seconds.

    `managed_resources` empty: all pod sets are part of a request. `selector_details` maps keys of node
    selectors to the details of a request that have their values.
    """

    name: str
    class_name: str
    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    managed_resources: frozenset[str] = frozenset()
    backoff_limit: int = 3
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 1800
    selector_details: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    merge_policy: MergePolicy = MergePolicy.NONE

    def backoff_seconds(self, attempt: int) -> int:
        """Return how long a Workload waits after its `attempt`th request (from 1) has failed.

        Kueue adds up to one ten-thousandth at random and cuts to whole seconds. The random part is left out.
        """
        # The exponent is capped: with it every maximum has long been reached.
        return int(min(self.backoff_base_seconds * 2 ** min(attempt - 1, 31), self.backoff_max_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPods:
    """`count` pods of a ProvisioningRequest with the PodTemplate of this name."""

    template: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningRequest:
    """A ProvisioningRequest as last seen."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    class_name: str
    parameters: Mapping[str, str]
    pods: tuple[RequestedPods, ...]
    is_deleted: bool = False
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    @property
    def outcome(self) -> Outcome | None:
        """Return the condition that counts: the first of `Outcome` that is True. None: the request waits."""
        return next((one for one in Outcome if self.is_true(one)), None)

    def is_true(self, outcome: Outcome) -> bool:
        """Return whether the condition is True."""
        found = self.conditions.get(outcome)
        return found is not None and found.status

    def message_of(self, outcome: Outcome) -> str:
        """Return what the autoscaler says in this condition; "" without the condition."""
        found = self.conditions.get(outcome)
        return found.message if found is not None else ""

    def matches(self, config: ProvisioningConfig) -> bool:
        """Return whether the request asks for what the settings say now; Workloads may add parameters."""
        return self.class_name == config.class_name and config.parameters.items() <= self.parameters.items()


def to_provisioning_config(wire: ProvisioningConfigObject) -> ProvisioningConfig:
    """Return the settings. Raises SpecError for a missing class and an unknown policy."""
    spec, retry = wire.spec, wire.spec.retry_strategy or WireRetryStrategy()
    if not spec.provisioning_class_name:
        raise SpecError("spec.provisioningClassName is empty; give the class of the ProvisioningRequests")
    selectors = (spec.pod_set_updates.node_selector if spec.pod_set_updates is not None else None) or ()
    return ProvisioningConfig(
        name=wire.metadata.name,
        class_name=spec.provisioning_class_name,
        parameters=spec.parameters or NOTHING,
        managed_resources=frozenset(spec.managed_resources or ()),
        backoff_limit=retry.backoff_limit_count,
        backoff_base_seconds=retry.backoff_base_seconds,
        backoff_max_seconds=retry.backoff_max_seconds,
        selector_details={one.key: one.value_from_provisioning_class_detail for one in selectors},
        merge_policy=read_word(
            "spec.podSetMergePolicy", MergePolicy, spec.pod_set_merge_policy, MergePolicy.NONE
        ),
    )


def to_provisioning_request(wire: ProvisioningRequestObject) -> ProvisioningRequest:
    """Return the request. Raises ValueError for a time that cannot be read."""
    meta, spec = wire.metadata, wire.spec
    return ProvisioningRequest(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        class_name=spec.provisioning_class_name,
        parameters=spec.parameters or NOTHING,
        pods=tuple(
            RequestedPods(template=one.pod_template_ref.name, count=one.count) for one in spec.pod_sets
        ),
        is_deleted=meta.deletion_timestamp is not None,
        conditions=to_conditions(wire.status.conditions),
        details=wire.status.provisioning_class_details or NOTHING,
    )


def parameters_problem(parameters: CheckParameters | None) -> str | None:
    """Return why the parameters of a check name no ProvisioningRequestConfig; None if they do.

    In Kueue's words. Source: Kueue, pkg/util/admissioncheck.
    """
    if parameters is None:
        return "missing parameters reference"
    expected = (("group", parameters.group, keys.KUEUE_GROUP), ("kind", parameters.kind, CONFIG_KIND))
    for what, have, want in expected:
        if have != want:
            return f'wrong {what} "{have}", expecting "{want}": bad parameters reference'
    return None if parameters.name else "empty name: bad parameters reference"


def request_name(workload: str, check: str, attempt: int) -> str:
    """Return the name of the `attempt`th request (from 1) of a Workload for a check."""
    return _limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Return the name of a request's PodTemplate for this pod set."""
    return _limited(f"ppt-{request}-{pod_set}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """Return which attempt (from 1) a request is; None if its name is of another Workload or check."""
    prefix = f"{workload}-{check}-"
    if request.startswith(prefix) and re.fullmatch("[0-9]{1,9}", request.removeprefix(prefix)):
        return int(request.removeprefix(prefix))
    if len(request) < _MAX_NAME:
        return None
    # The number of a name that was cut is in its hash alone.
    attempts = range(1, _MOST_ATTEMPTS + 1)
    return next((one for one in attempts if request_name(workload, check, one) == request), None)


def _limited(name: str) -> str:
    """Return the name, cut to the maximum length with five digits of a hash of all of it."""
    if len(name) <= _MAX_PREFIX:
        return name
    # The hash is not for security. It is SHA-1 because names must agree with those that Kueue has generated.
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    return f"{name[:_MAX_PREFIX]}-{digest}"
