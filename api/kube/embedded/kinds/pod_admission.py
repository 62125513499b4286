"""Admission of new pods: fields that the cluster adds, and reasons for which it rejects a pod.

The real server uses admission plugins: Priority, RuntimeClass, DefaultTolerationSeconds, LimitRanger.

Source: k8s.io/kubernetes, plugin/pkg/admission.
"""

from typing import Final

from api.kube.embedded.apply.errors import ApiError
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import World
from api.kube.embedded.kinds.pod_spec import containers_of

# By default, pods leave a node that is not ready or unreachable after five minutes.
_UNREADY_SECONDS = 300
_UNREADY_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admit_pod(item: JsonObject, world: World) -> None:
    """Resolve priority and runtime class, add tolerations, apply LimitRanges. Raises ApiError (403)."""
    _admit_priority(item, world)
    _admit_runtime_class(item, world)
    _admit_tolerations(item["spec"])
    _admit_limits(item, world)


def _refused(item: JsonObject, why: str) -> ApiError:
    name = item["metadata"]["name"]
    details = {"name": name, "kind": "pods"}
    return ApiError(403, "Forbidden", f'pods "{name}" is forbidden: {why}', details=details)


def _admit_priority(item: JsonObject, world: World) -> None:
    spec = item["spec"]
    name = spec.get("priorityClassName")
    classes = world.items("scheduling.k8s.io", "priorityclasses")
    if name:
        found = next((each for each in classes if each["metadata"]["name"] == name), None)
        if found is None:
            raise _refused(item, f"no PriorityClass with name {name} was found")
    else:
        found = next((each for each in classes if each.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    spec["priority"] = found["value"] if found else 0
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _admit_runtime_class(item: JsonObject, world: World) -> None:
    spec = item["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        return
    found = world.find("node.k8s.io", "runtimeclasses", name)
    if found is None:
        raise _refused(item, f'pod rejected: RuntimeClass "{name}" not found')
    if overhead := found.get("overhead", {}).get("podFixed"):
        spec["overhead"] = dict(overhead)
    scheduling = found.get("scheduling", {})
    if selector := scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector}
    if tolerations := scheduling.get("tolerations"):
        spec["tolerations"] = [*spec.get("tolerations", ()), *tolerations]


def _admit_tolerations(spec: JsonObject) -> None:
    given = spec.get("tolerations", [])
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNREADY_SECONDS}
        for key in _UNREADY_TAINTS
        if not any(_covers(each, key) for each in given)
    ]
    if added:
        spec["tolerations"] = [*given, *added]


def _covers(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def _admit_limits(item: JsonObject, world: World) -> None:
    """Set container requests and limits from the namespace's LimitRanges of type Container."""
    ranges = world.items("", "limitranges", item["metadata"]["namespace"])
    limits = [
        limit
        for each in ranges
        for limit in each["spec"].get("limits") or ()
        if limit.get("type") == "Container"
    ]
    for limit in limits:
        for container in containers_of(item["spec"]):
            resources = container.setdefault("resources", {})
            for key, source in (("requests", "defaultRequest"), ("limits", "default")):
                filled = {**limit.get(source, {}), **resources.get(key, {})}
                if filled:
                    resources[key] = filled
