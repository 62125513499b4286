"""What is wrong with an object that a person wrote: all faults at once, each a sentence.

The API server checks schemas and CEL rules by itself; Kueue checks the rest in webhooks. Berth must say the
same of manifests in files and of clusters without webhooks, so here stands all of it: first the schema, and
where that is kept, the rules between fields.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api import models
from api.parsing.faults import FieldError, validation_errors
from api.validation.flavors import resource_flavor_errors, topology_errors
from api.validation.jobs import job_errors
from api.validation.policies import admission_policy_errors
from api.validation.quotas import cluster_queue_errors, cohort_errors
from api.validation.updates import UPDATE_RULES
from api.validation.workloads import workload_errors

__all__ = ["FieldError", "read_admission_policy", "validate", "validate_update"]

_M = TypeVar("_M", bound=BaseModel)
_Check = Callable[[Mapping[str, Any]], tuple[FieldError, ...]]


def validate(obj: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return what is wrong with a Job or an object of Kueue's or Berth's kinds; empty for nothing.

    Kueue's kinds are read in v1beta2 (see api.definitions.conversion for older ones). Objects of
    other kinds have no rules here. Faults of the schema are returned alone, because the rules between
    fields need it kept.
    """
    check = _CHECKS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    return check(obj) if check else ()


def validate_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return what is wrong with a change of an object, as `validate` does.

    What was wrong before does not count: an object that came in before its rule must stay editable, if only
    for a finalizer to be taken off.
    """
    before = {str(error) for error in validate(old)}
    faults = [error for error in validate(new) if str(error) not in before]
    rules = UPDATE_RULES.get((str(new.get("apiVersion")), str(new.get("kind"))))
    return (*faults, *(rules(old, new) if rules else ()))


def _no_rules(_: BaseModel) -> Iterator[FieldError]:
    return iter(())


def read_admission_policy(obj: Mapping[str, Any]) -> models.AdmissionPolicy | tuple[FieldError, ...]:
    """Return an AdmissionPolicy object as its model, or everything that is wrong with it."""
    return _read(models.AdmissionPolicy, admission_policy_errors, obj)


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
    ("batch/v1", "Job"): lambda obj: tuple(job_errors(obj)),
    (_KUEUE, "AdmissionCheck"): _checked(models.AdmissionCheck, _no_rules),
    (_KUEUE, "ClusterQueue"): _checked(models.ClusterQueue, cluster_queue_errors),
    (_KUEUE, "Cohort"): _checked(models.Cohort, cohort_errors),
    (_KUEUE, "LocalQueue"): _checked(models.LocalQueue, _no_rules),
    (_KUEUE, "ResourceFlavor"): _checked(models.ResourceFlavor, resource_flavor_errors),
    (_KUEUE, "Topology"): _checked(models.Topology, topology_errors),
    (_KUEUE, "Workload"): _checked(models.Workload, workload_errors),
    (_KUEUE, "WorkloadPriorityClass"): _checked(models.WorkloadPriorityClass, _no_rules),
    ("berth.dev/v1alpha1", "AdmissionPolicy"): _checked(models.AdmissionPolicy, admission_policy_errors),
}
