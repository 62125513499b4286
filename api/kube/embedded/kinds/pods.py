"""Pods: the fields that the server determines, and the changes that an update may make.

Source: k8s.io/kubernetes, pkg/registry/core/pod, pkg/apis/core/validation, plugin/pkg/admission.

Admission of new pods adds fields from the cluster and gives the reasons for which it rejects a pod. The real
server uses admission plugins: Priority, RuntimeClass, DefaultTolerationSeconds, LimitRanger.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from api.kube.embedded.apply.errors import ApiError, FieldError, forbidden_field, invalid_value
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import Strategy, World
from api.kube.embedded.kinds.pod_spec import containers_of, pod_spec_faults, take, take_node_affinity
from api.parsing.quantities import parse

_MUTABLE_FIELDS: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FINISHED_PHASES: Final = ("Succeeded", "Failed")
# By default, pods leave a node that is not ready or unreachable after five minutes.
_UNREADY_SECONDS = 300
_UNREADY_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodStrategy(Strategy):
    """The rules for Pods."""

    counts_generations = True
    is_graceful = True
    returns_deleted = True
    reset_by_main = ("status",)

    def fill(self, item: JsonObject) -> None:
        """Keep the two forms of the pod's address consistent."""
        status = item["status"]
        address, addresses = status.get("podIP"), status.get("podIPs")
        # The single address takes precedence, because older clients write only that one.
        if address and (not addresses or addresses[0].get("ip") != address):
            status["podIPs"] = [{"ip": address}]
        elif addresses:
            status["podIP"] = addresses[0].get("ip", "")

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set the phase, the quality of service and, for gated pods, the condition PodScheduled=False."""
        del world
        # A status in the request is ignored, because only a kubelet may report more.
        item["status"] = {"phase": "Pending", "qosClass": quality_of_service(item["spec"])}
        if item["spec"].get("schedulingGates"):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
            item["status"]["conditions"] = [condition]

    def admit(self, item: JsonObject, world: World) -> None:
        """Add the fields that the cluster adds, or reject the pod."""
        _admit_pod(item, world)

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the pod."""
        yield from pod_spec_faults(item["spec"], "spec")

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the changes of the spec that a pod does not allow."""
        return _spec_update_faults(new["spec"], old["spec"])

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        """Use the new status; keep owners, and the quality of service, which clients may omit."""
        # The status endpoint does not change the spec, whatever the body contains.
        new["spec"] = old["spec"]
        if owners := old["metadata"].get("ownerReferences"):
            new["metadata"]["ownerReferences"] = owners
        else:
            new["metadata"].pop("ownerReferences", None)
        if "qosClass" in old["status"]:
            new["status"].setdefault("qosClass", old["status"]["qosClass"])

    def grace_seconds(self, item: JsonObject, asked: int | None) -> int:
        """Return the grace period of the pod; 0 for a pod that no kubelet runs."""
        spec = item["spec"]
        # No kubelet would report the end of such a pod, so it would never be deleted.
        if not spec.get("nodeName") or item["status"].get("phase") in _FINISHED_PHASES:
            return 0
        wanted = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
        return max(int(wanted), 0) if wanted >= 0 else 1


def quality_of_service(spec: JsonObject) -> str:
    """Return the QoS class, Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    requests: list[Mapping[str, Fraction]] = []
    limits: list[Mapping[str, Fraction]] = []
    for container in containers_of(spec):
        resources = container.get("resources", {})
        requests.append(_counted(resources.get("requests")))
        limits.append(_counted(resources.get("limits")))
    if not any(requests) and not any(limits):
        return "BestEffort"
    # Every container must have limits for both resources; otherwise it could burst.
    is_guaranteed = all(len(limit) == len(_QOS_RESOURCES) for limit in limits)
    same = all(not request or request == limit for request, limit in zip(requests, limits, strict=True))
    return "Guaranteed" if is_guaranteed and same else "Burstable"


_QOS_RESOURCES: Final = ("cpu", "memory")


def _counted(resources: Mapping[str, str] | None) -> Mapping[str, Fraction]:
    found = {name: parse((resources or {}).get(name, "0")) for name in _QOS_RESOURCES}
    return {name: amount for name, amount in found.items() if amount > 0}


def _spec_update_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if new == old:
        return
    for key in ("containers", "initContainers"):
        # Reported alone, because the containers cannot be compared in pairs then.
        if len(new.get(key) or ()) != len(old.get(key) or ()):
            yield forbidden_field(f"spec.{key}", "pod updates may not add or remove containers")
            return
    if faults := list(_deadline_update_faults(new, old)):
        yield from faults
        return
    yield from _tolerations_update_faults(new.get("tolerations", []), old.get("tolerations", []))
    # Gates can only be removed, so that a pod which was released cannot be held again.
    for index, gate in enumerate(new.get("schedulingGates", ())):
        if gate not in old.get("schedulingGates", ()):
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden_field(f"spec.schedulingGates[{index}].name", why)
    allowed = _with_mutable_fields(old, new)
    # A gated pod is not scheduled yet, so its placement may still be restricted. The controller sets the
    # topology domain of a pod in this way.
    if old.get("schedulingGates"):
        yield from _gated_faults(new, old)
        take(allowed, new, "nodeSelector")
        take_node_affinity(allowed, new)
    if new != allowed:
        yield forbidden_field("spec", f"pod updates may not change fields other than {_MUTABLE_FIELDS}")


def _deadline_update_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    path, seconds = "spec.activeDeadlineSeconds", new.get("activeDeadlineSeconds")
    before = old.get("activeDeadlineSeconds")
    if seconds is None and before is not None:
        yield invalid_value(path, None, "must not update from a positive integer to nil value")
    elif seconds is not None and seconds < 0:
        yield invalid_value(path, seconds, "must be between 0 and 2147483647, inclusive")
    elif seconds is not None and before is not None and seconds > before:
        yield invalid_value(path, seconds, "must be less than or equal to previous value")


def _with_mutable_fields(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the old spec with the fields that any pod may change taken from the new spec."""
    allowed = dict(old)
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        take(allowed, new, key)
    for key in ("containers", "initContainers"):
        pairs = zip(old.get(key, ()), new.get(key, ()), strict=False)
        if key in old:
            allowed[key] = [{**was, "image": now.get("image", "")} for was, now in pairs]
    return allowed


def _gated_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    before, after = old.get("nodeSelector", {}), new.get("nodeSelector", {})
    # The selector may be restricted but not extended, so that the requirements of the owner still hold.
    if any(after.get(key) != value for key, value in before.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid_value("spec.nodeSelector", after, why)


def _tolerations_update_faults(new: Sequence[JsonObject], old: Sequence[JsonObject]) -> Iterator[FieldError]:
    def bare(toleration: JsonObject) -> JsonObject:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    # Tolerations may be added, and tolerationSeconds may change.
    kept = [bare(each) for each in new]
    if any(bare(each) not in kept for each in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", why)


def _admit_pod(item: JsonObject, world: World) -> None:
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
