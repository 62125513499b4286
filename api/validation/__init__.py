"""Validation of objects that people write. All faults of an object are returned at once, each as a sentence.

The API server checks schemas and CEL rules; Kueue checks the remaining rules in webhooks. Berth must report
the same faults for manifests in files and for clusters without webhooks, so this package contains all of
them: first the schema, and if the object satisfies it, the rules between fields.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.models.admission_policy import AdmissionPolicy
from api.models.classes import AdmissionCheck, WorkloadPriorityClass
from api.models.cluster_queue import ClusterQueue
from api.models.cohort import Cohort
from api.models.local_queue import LocalQueue
from api.models.provisioning import ProvisioningRequestConfig
from api.models.resource_flavor import ResourceFlavor, Topology
from api.models.workload import Workload
from api.parsing.faults import FieldError, validation_errors
from api.validation.flavors import resource_flavor_errors, topology_errors
from api.validation.jobs import job_errors, serving_errors
from api.validation.policies import admission_policy_errors
from api.validation.quotas import cluster_queue_errors, cohort_errors
from api.validation.updates import UPDATE_RULES, is_judged_again
from api.validation.workloads import workload_errors

__all__ = ["read_admission_policy", "validate", "validate_update"]

_M = TypeVar("_M", bound=BaseModel)
_Check = Callable[[Mapping[str, Any]], tuple[FieldError, ...]]


def validate(obj: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the faults of a Job, a serving object or one of Kueue's or Berth's kinds; () if there are none.

    Kueue's kinds are expected in v1beta2 (see api.definitions.conversion for older versions). Objects of
    other kinds have no rules here. If the schema is violated, only those faults are returned, because the
    rules between fields assume a valid schema.
    """
    check = _CHECKS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    return check(obj) if check else ()


def validate_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the faults of a change from `old` to `new`, in the form of `validate`.

    Faults that `old` already had are left out: an object that was created before a rule existed must stay
    editable, for example to remove a finalizer.
    """
    before = {str(error) for error in validate(old)}
    faults = [
        error for error in validate(new) if str(error) not in before and is_judged_again(old, new, error)
    ]
    rules = UPDATE_RULES.get((str(new.get("apiVersion")), str(new.get("kind"))))
    return (*faults, *(rules(old, new) if rules else ()))


def _no_rules(_: BaseModel) -> Iterator[FieldError]:
    return iter(())


def read_admission_policy(obj: Mapping[str, Any]) -> AdmissionPolicy | tuple[FieldError, ...]:
    """Return an AdmissionPolicy object as its model, or everything that is wrong with it."""
    return _read(AdmissionPolicy, admission_policy_errors, obj)


def _read(
    model: type[_M], rules: Callable[[_M], Iterator[FieldError]], obj: Mapping[str, Any]
) -> _M | tuple[FieldError, ...]:
    try:
        value = model.model_validate(obj)
    except ValidationError as error:
        return validation_errors(error)
    return tuple(rules(value)) or value


def _checked(model: type[_M], rules: Callable[[_M], Iterator[FieldError]]) -> _Check:
    def check(obj: Mapping[str, Any]) -> tuple[FieldError, ...]:
        read = _read(model, rules, obj)
        return read if isinstance(read, tuple) else ()

    return check


_KUEUE = "kueue.x-k8s.io/v1beta2"
_CHECKS: Mapping[tuple[str, str], _Check] = {
    ("apps/v1", "Deployment"): lambda obj: tuple(serving_errors(obj)),
    ("apps/v1", "StatefulSet"): lambda obj: tuple(serving_errors(obj)),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): lambda obj: tuple(serving_errors(obj)),
    ("batch/v1", "Job"): lambda obj: tuple(job_errors(obj)),
    (_KUEUE, "AdmissionCheck"): _checked(AdmissionCheck, _no_rules),
    (_KUEUE, "ClusterQueue"): _checked(ClusterQueue, cluster_queue_errors),
    (_KUEUE, "Cohort"): _checked(Cohort, cohort_errors),
    (_KUEUE, "LocalQueue"): _checked(LocalQueue, _no_rules),
    (_KUEUE, "ProvisioningRequestConfig"): _checked(ProvisioningRequestConfig, _no_rules),
    (_KUEUE, "ResourceFlavor"): _checked(ResourceFlavor, resource_flavor_errors),
    (_KUEUE, "Topology"): _checked(Topology, topology_errors),
    (_KUEUE, "Workload"): _checked(Workload, workload_errors),
    (_KUEUE, "WorkloadPriorityClass"): _checked(WorkloadPriorityClass, _no_rules),
    ("berth.dev/v1alpha1", "AdmissionPolicy"): _checked(AdmissionPolicy, admission_policy_errors),
}
