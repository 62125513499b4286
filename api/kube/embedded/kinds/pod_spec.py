"""Validation of the spec of a pod or of a pod template.

The checks cover the faults that users of a queue are likely to make: names, duplicates, amounts, enumerated
values, and fields for placement. Volumes and security settings are not checked.

Source: k8s.io/kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from api.kube.embedded.apply.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.names import (
    label_fault,
    label_value_fault,
    labels_faults,
    qualified_fault,
    subdomain_fault,
)
from api.parsing.quantities import parse

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def containers_of(spec: JsonObject) -> list[JsonObject]:
    """Return the init containers and the main containers."""
    return [*spec.get("initContainers", ()), *(spec.get("containers") or ())]


def take(target: JsonObject, source: JsonObject, key: str) -> None:
    """Set a field of `target` to its value in `source`; remove it if it is absent there."""
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def take_node_affinity(target: JsonObject, source: JsonObject) -> None:
    """Set the node affinity of a spec to that of another; affinity to pods stays."""
    affinity = dict(target.get("affinity", {}))
    take(affinity, source.get("affinity", {}), "nodeAffinity")
    # A comparison of specs would treat an empty object and an absent one as different.
    if affinity or "affinity" in source:
        target["affinity"] = affinity
    else:
        target.pop("affinity", None)


def pod_spec_faults(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the faults of the spec of a pod or of a template."""
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    yield from _containers_faults(containers, f"{path}.containers")
    yield from _containers_faults(spec.get("initContainers", ()), f"{path}.initContainers")
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), sorted(_RESTART_POLICIES))
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        why = "must be greater than or equal to 0"
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, why)
    yield from labels_faults(spec.get("nodeSelector", {}), f"{path}.nodeSelector")
    yield from _toleration_faults(spec.get("tolerations", ()), f"{path}.tolerations")
    yield from _affinity_faults(spec.get("affinity", {}), f"{path}.affinity")
    yield from _gate_faults(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    if fault := subdomain_fault(spec["priorityClassName"]) if "priorityClassName" in spec else None:
        yield invalid_value(f"{path}.priorityClassName", spec["priorityClassName"], fault)


def _containers_faults(containers: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, container in enumerate(containers):
        here = f"{path}[{index}]"
        name = container.get("name", "")
        if not name:
            yield required(f"{here}.name")
        elif fault := label_fault(name):
            yield invalid_value(f"{here}.name", name, fault)
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield required(f"{here}.image")
        yield from _resource_faults(container.get("resources", {}), f"{here}.resources")
        yield from _env_faults(container.get("env", ()), f"{here}.env")


def _env_faults(env: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    for index, variable in enumerate(env):
        if not variable.get("name"):
            yield required(f"{path}[{index}].name")


def _resource_faults(resources: JsonObject, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits", {})
    requests = resources.get("requests", {})
    for key, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if fault := qualified_fault(name) or _standard_fault(name):
                yield invalid_value(f"{path}.{key}", name, fault)
            if parse(amount) < 0:
                yield invalid_value(f"{path}.{key}[{name}]", amount, "must be greater than or equal to 0")
            # Devices can only be assigned as a whole.
            elif _is_counted(name) and parse(amount).denominator != 1:
                yield invalid_value(f"{path}.{key}[{name}]", amount, "must be an integer")
    yield from _overcommit_faults(requests, limits, path)


def _standard_fault(name: str) -> str | None:
    known = ("cpu", "memory", "ephemeral-storage", "storage")
    # Only Kubernetes' own resources have names without a domain.
    if "/" in name or name in known or name.startswith(("hugepages-", "attachable-volumes-")):
        return None
    return "must be a standard resource type or fully qualified"


def _is_counted(name: str) -> bool:
    """Return whether a resource is an extended one, which is counted in whole units."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _overcommit_faults(
    requests: Mapping[str, str], limits: Mapping[str, str], path: str
) -> Iterator[FieldError]:
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is not None and parse(amount) > parse(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", amount, why)
        # Devices cannot be overcommitted, so the request must equal the limit.
        elif _is_counted(name) and (limit is None or parse(limit) != parse(amount)):
            if limit is None:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            else:
                why = f"must be equal to {name} limit of {limit}"
                yield invalid_value(f"{path}.requests", amount, why)


def _toleration_faults(tolerations: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
        if key and (fault := qualified_fault(key)):
            yield invalid_value(f"{here}.key", key, fault)
        # Without a key the toleration matches every taint, so it cannot require a value.
        if not key and operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid_value(f"{here}.operator", operator, why)
        if operator not in ("Equal", "Exists"):
            yield unsupported(f"{here}.operator", operator, ("Equal", "Exists"))
        elif operator == "Exists" and toleration.get("value"):
            why = "value must be empty when `operator` is 'Exists'"
            yield invalid_value(f"{here}.operator", toleration["value"], why)
        effect = toleration.get("effect", "")
        if effect and effect not in _EFFECTS:
            yield unsupported(f"{here}.effect", effect, _EFFECTS)
        # The other effects never evict a pod, so a time has no meaning there.
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid_value(f"{here}.effect", effect, why)


def _affinity_faults(affinity: JsonObject, path: str) -> Iterator[FieldError]:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    wanted = affinity.get("nodeAffinity", {}).get(key)
    if wanted is None:
        return
    here = f"{path}.nodeAffinity.{key}"
    # An empty list would select no node, which is not intended.
    terms = wanted.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{here}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        for at, expression in enumerate(term.get("matchExpressions", ())):
            spot = f"{here}.nodeSelectorTerms[{index}].matchExpressions[{at}]"
            yield from _expression_faults(expression, spot)


def _expression_faults(expression: JsonObject, path: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator"), expression.get("values", ())
    if operator not in _OPERATORS:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    elif operator in ("In", "NotIn") and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden_field(f"{path}.values", why)
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    if fault := qualified_fault(expression.get("key", "")):
        yield invalid_value(f"{path}.key", expression.get("key", ""), fault)
    for at, value in enumerate(values):
        if fault := label_value_fault(value):
            yield invalid_value(f"{path}.values[{at}]", value, fault)


def _gate_faults(gates: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        if fault := qualified_fault(name):
            yield invalid_value(f"{path}[{index}]", name, fault)
        if name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)
