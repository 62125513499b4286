"""The row of SparkApplication (sparkoperator.k8s.io): the driver, and its executors.

Pods have no template of their own in the object: Spark composes them from the fields of `spec.driver` and
`spec.executor`, and so does this module, as far as requests and places depend on it. A start writes into the
same fields. Source: Kueue, pkg/controller/jobs/sparkapplication; Spark operator v2.5, internal/webhook and
internal/controller/sparkapplication.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from api.jobs.owners.paths import Body, Path, path_text, replaced, value_at
from api.jobs.owners.ray import UPDATE_GATE
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet
from api.jobs.owners.spark_conf import conf_faults
from api.jobs.pod_template import Template
from api.jobs.queued_object import JobOutcome
from api.parsing.faults import FieldError
from api.parsing.quantities import parse

_DRIVER, _EXECUTOR = "driver", "executor"
# What Spark calls the container of each role.
_CONTAINERS = {_DRIVER: "spark-kubernetes-driver", _EXECUTOR: "spark-kubernetes-executor"}
# Either name marks Spark's own container in the pod template of an executor.
_OWN_CONTAINERS = frozenset({*_CONTAINERS.values(), "executor"})
# Java's units are powers of two, whatever their case.
_JAVA_MEMORY = re.compile(r"(?P<number>[0-9.]+)(?P<unit>[kmgtp])b?", re.IGNORECASE)
# States in which the operator has created no pods, or has deleted them.
_WITHOUT_PODS = frozenset({"", "SUSPENDED", "SUBMISSION_FAILED", "COMPLETED", "FAILED"})
# What Spark requests beyond `memory` unless told otherwise: a tenth of it, or this share in other languages,
# and at least so many bytes.
_OVERHEAD_FACTORS = {"Python": "0.4", "R": "0.4"}
_LEAST_OVERHEAD = 384 * 2**20
_GLOBAL_SELECTOR: Path = ("spec", "nodeSelector")
_GATES: Path = ("template", "spec", "schedulingGates")


# --- pod sets -------------------------------------------------------------------------------------


def pod_sets(body: Body) -> tuple[OwnerPodSet, ...]:
    """Return the driver, and the executors that it begins with."""
    counts = {_DRIVER: 1, _EXECUTOR: body["spec"][_EXECUTOR].get("instances") or 0}
    return tuple(
        OwnerPodSet(name=role, count=count, template=_template(body, role), at=("spec", role))
        for role, count in counts.items()
    )


def _template(body: Body, role: str) -> Template:
    own = body["spec"][role]
    metadata = {
        name: {**_metadata_of_template(own, name), **(own.get(name) or {})}
        for name in ("labels", "annotations")
    }
    selector = {**(value_at(body, _GLOBAL_SELECTOR) or {}), **(own.get("nodeSelector") or {})}
    spec = {
        "containers": [_container(own, role), *(own.get("sidecars") or ())],
        "initContainers": own.get("initContainers"),
        "nodeSelector": selector,
        "affinity": own.get("affinity"),
        "tolerations": own.get("tolerations"),
        "priorityClassName": own.get("priorityClassName"),
        "schedulingGates": value_at(own, _GATES),
    }
    return {
        "metadata": {name: values for name, values in metadata.items() if values},
        "spec": {name: value for name, value in spec.items() if value},
    }


def _metadata_of_template(own: Body, name: str) -> Mapping[str, str]:
    return value_at(own, ("template", "metadata", name)) or {}


def _container(own: Body, role: str) -> Body:
    requests = {"cpu": own.get("coreRequest"), "memory": _memory(own.get("memory"))}
    gpu = own.get("gpu") or {}
    gpus = {gpu["name"]: gpu["quantity"]} if gpu.get("name") and gpu.get("quantity", 0) > 0 else {}
    limits = {"cpu": own.get("coreLimit"), "memory": _memory(own.get("memoryLimit")), **gpus}
    resources = {"requests": _present(requests), "limits": _present(limits)}
    return {"name": _CONTAINERS[role], "resources": _present(resources)}


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _memory(text: str | None) -> str | None:
    """Return an amount of memory in Java's notation, such as `512m`, as a Kubernetes quantity."""
    found = _JAVA_MEMORY.fullmatch(text or "")
    if found is None:
        return text
    unit = found["unit"]
    return f"{found['number']}{unit.upper()}i"


# --- what a start adds ----------------------------------------------------------------------------


def with_template(body: Body, pod_set: OwnerPodSet, template: Template) -> Body:
    """Return the application with a role's own fields such that its pods have this template.

    What the role's pod template says already is not repeated. Spark accepts no selector for both roles
    beside that of one, so the common one is moved into the roles, as Kueue does.
    """
    role = pod_set.name
    body = _with_own_selectors(body)
    own, spec = dict(body["spec"][role]), template.get("spec") or {}
    fields: dict[str, Any] = {
        name: _own_metadata(own, name, value_at(template, ("metadata", name)) or {})
        for name in ("labels", "annotations")
    }
    fields |= {name: spec.get(name) for name in ("nodeSelector", "tolerations", "affinity")}
    for name, value in fields.items():
        own.pop(name, None)
        if value:
            own[name] = value
    changed: Body = replaced(body, ("spec", role), _with_gates(own, role, spec.get("schedulingGates")))
    return changed


def _own_metadata(own: Body, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
    have, common = own.get(name) or {}, _metadata_of_template(own, name)
    return {key: value for key, value in wanted.items() if key in have or common.get(key) != value}


def _with_own_selectors(body: Body) -> Body:
    if not value_at(body, _GLOBAL_SELECTOR):
        return body
    spec = {name: value for name, value in body["spec"].items() if name != _GLOBAL_SELECTOR[-1]}
    for role in _CONTAINERS:
        spec[role] = {**spec[role], "nodeSelector": _template(body, role)["spec"]["nodeSelector"]}
    return {**body, "spec": spec}


def _with_gates(own: Body, role: str, gates: Any) -> Body:
    if (value_at(own, _GATES) or None) == (gates or None):
        return own
    # The definition wants a container in a pod template; Spark finds its own by this name.
    bare: Body = {"spec": {"containers": [{"name": _CONTAINERS[role]}]}}
    template = own.get("template") or bare
    spec = {name: value for name, value in template["spec"].items() if name != _GATES[-1]}
    template = {**template, "spec": {**spec, **({_GATES[-1]: gates} if gates else {})}}
    kept = {name: value for name, value in own.items() if name != "template"}
    return kept if template == bare else {**kept, "template": template}


# --- what may be queued, and its state ------------------------------------------------------------


def faults(body: Body) -> Iterator[FieldError]:
    """Yield what forbids an application to be queued, with Kueue's words where it has them."""
    spec = body["spec"]
    if spec.get("mode") != "cluster":
        rule = "only Cluster mode is supported for a kueue managed job"
        yield FieldError(path="spec.mode", value=spec.get("mode") or "", rule=rule)
    if value_at(spec, ("dynamicAllocation", "enabled")):
        rule = "not supported: a Workload has a fixed number of pods; set spec.executor.instances"
        yield FieldError(path="spec.dynamicAllocation.enabled", value=True, rule=rule)
    yield from conf_faults(spec)
    for role in _CONTAINERS:
        yield from _uncounted(spec, role)


def _uncounted(spec: Body, role: str) -> Iterator[FieldError]:
    """Yield the containers of a role's pod template beside Spark's own, whose requests are Spark's."""
    at: Path = (role, "template", "spec", "containers")
    names = [one.get("name", "") for one in value_at(spec, at) or ()]
    # Spark takes the first one for its own if none has the name.
    own = next((index for index, name in enumerate(names) if name in _OWN_CONTAINERS), 0)
    for index, name in enumerate(names):
        if index != own:
            rule = f"its Workload does not count it; move it to spec.{role}.sidecars"
            yield FieldError(path=path_text(("spec", *at, index, "name")), value=name, rule=rule)


def active(body: Body) -> int:
    """Return 1 while the operator may have pods for it. Each of these states ends in SUSPENDED by a stop."""
    return int(_state(body) not in _WITHOUT_PODS)


def outcome(body: Body) -> JobOutcome | None:
    """Return how it ended.

    A failed submission has not ended, unlike in Kueue: the operator tries again, or reports FAILED next.
    """
    state = _state(body)
    if state not in ("COMPLETED", "FAILED"):
        return None
    is_success = state == "COMPLETED"
    message = value_at(body, ("status", "applicationState", "errorMessage"))
    fallback = "finished successfully" if is_success else "failed"
    return JobOutcome(is_success=is_success, message=message or fallback)


def are_pods_ready(body: Body) -> bool:
    """Return whether the driver runs, and all executors do or have completed."""
    states = (value_at(body, ("status", "executorState")) or {}).values()
    ready = sum(state in ("RUNNING", "COMPLETED") for state in states)
    return _state(body) == "RUNNING" and ready >= (body["spec"][_EXECUTOR].get("instances") or 0)


def _state(body: Body) -> str:
    state: str | None = value_at(body, ("status", "applicationState", "state"))
    return state or ""


def counts(body: Body, child: Child) -> bool:
    """Return whether a pod may be the driver that Spark has created for this application.

    Spark requests more than Kueue counts: `cores` where `coreRequest` is absent, and memory beyond the heap.
    """
    own = body["spec"][_DRIVER]
    name = own.get("podName") or f"{body['metadata']['name']}-{_DRIVER}"
    if (child.kind, child.name) != ("Pod", name):
        return False
    spec = _template(body, _DRIVER)["spec"]
    first, *sidecars = spec["containers"]
    resources = first["resources"]
    requests = {"cpu": own.get("cores") or 1, **(resources.get("requests") or {})}
    requests["memory"] = _whole_memory(own, body["spec"])
    whole = {**first, "resources": {**resources, "requests": requests}}
    return child.requests_no_more(child.body, {"spec": {**spec, "containers": [whole, *sidecars]}})


def _whole_memory(own: Body, spec: Body) -> int:
    """Return the bytes that Spark requests for a driver: the heap, and what it adds to that."""
    heap = parse(_memory(own.get("memory")) or "1Gi")
    if added := _memory(own.get("memoryOverhead")):
        return ceil(heap + parse(added))
    factor = spec.get("memoryOverheadFactor") or _OVERHEAD_FACTORS.get(spec.get("type", ""), "0.1")
    share = ceil(heap * parse(factor))
    return ceil(heap) + max(share, _LEAST_OVERHEAD)


SPARK_APPLICATION = OwnerKind(
    kind="SparkApplication",
    group="sparkoperator.k8s.io",
    version="v1beta2",
    plural="sparkapplications",
    framework="sparkoperator.k8s.io/sparkapplication",
    pod_sets=pod_sets,
    active=active,
    outcome=outcome,
    are_pods_ready=are_pods_ready,
    counts=counts,
    owns_pods=True,
    faults=faults,
    with_template=with_template,
    update_gate=UPDATE_GATE,
)
