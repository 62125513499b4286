"""Evictions: a pod is deleted only when its PodDisruptionBudgets allow one pod fewer.

The real cluster keeps the allowance in each budget's status, by a controller. Here it is counted when asked.

Source: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go and pkg/controller/disruption.
"""

from math import ceil

from .errors import ApiError
from .kinds import World
from .schema import Json, JsonObject
from .selectors import matches_labels

_FINISHED = ("Succeeded", "Failed")


def check_budgets(pod: JsonObject, world: World) -> None:
    """Raise ApiError (429) when a budget that selects `pod` does not allow its eviction.

    Pods that are finished, pending or leaving already are nobody's loss and always pass.
    """
    metadata = pod["metadata"]
    phase = pod["status"].get("phase")
    if phase in (*_FINISHED, "Pending") or metadata.get("deletionTimestamp"):
        return
    namespace = metadata["namespace"]
    budgets = [
        budget
        for budget in world.items("policy", "poddisruptionbudgets", namespace)
        if matches_labels(budget["spec"].get("selector"), metadata.get("labels", {}))
    ]
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "InternalError", message)
    for budget in budgets:
        _check(budget, pod, world.items("", "pods", namespace))


def _check(budget: JsonObject, pod: JsonObject, pods: list[JsonObject]) -> None:
    selected = [
        each
        for each in pods
        if matches_labels(budget["spec"].get("selector"), each["metadata"].get("labels", {}))
        and each["status"].get("phase") not in _FINISHED
    ]
    healthy = sum(_is_healthy(each) for each in selected)
    desired = _desired(budget["spec"], len(selected))
    # Evicting a pod that does not count as healthy takes nothing away while enough others do.
    if healthy > desired or (not _is_healthy(pod) and healthy >= desired):
        return
    name = budget["metadata"]["name"]
    cause = {
        "reason": "DisruptionBudget",
        "message": f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently",
    }
    raise ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [cause]},
    )


def _is_healthy(pod: JsonObject) -> bool:
    conditions = pod["status"].get("conditions", ())
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _desired(spec: JsonObject, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(expected - _scaled(spec["maxUnavailable"], expected), 0)
    return _scaled(spec.get("minAvailable", 1), expected)


def _scaled(value: Json, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return ceil(int(value[:-1]) * total / 100)
    return int(value)
