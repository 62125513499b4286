"""The rules of the simpler kinds. Pods, Jobs and CRDs have modules of their own.

Kinds that only other programs act on (RBAC, webhooks, Deployments) are only stored and served.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from api.kube.embedded.apply.errors import FieldError, invalid_value, required, unsupported
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.jobs import job_spec_faults
from api.kube.embedded.kinds.kinds import Strategy, World
from api.kube.embedded.kinds.names import label_fault, segment_fault, subdomain_fault

_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_MAX_USER_PRIORITY = 1_000_000_000


class StatusStrategy(Strategy):
    """A kind with spec, status and generation."""

    counts_generations = True
    reset_by_main = ("status",)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Reset the status."""
        del world
        if "status" in item:
            item["status"] = dict(self.blank_status)


class PathNameStrategy(Strategy):
    """A kind whose names only need to be valid in a URL, such as roles."""

    allows_create_on_update = True

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not allowed, or None."""
        return segment_fault(name)


class NamespaceStrategy(Strategy):
    """Namespaces, which are deleted after their contents."""

    reset_by_main = ("status",)

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not a DNS label, or None if it is one."""
        return label_fault(name)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set the phase, and the finalizer that delays the deletion until the contents are deleted."""
        del world
        item["status"] = {"phase": "Active"}
        # In the spec and not in the metadata, because only the endpoint `finalize` may remove it.
        item["spec"]["finalizers"] = ["kubernetes"]

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        """Keep the finalizers, which have their own endpoint."""
        new["spec"]["finalizers"] = old["spec"].get("finalizers", [])

    def holds(self, item: JsonObject) -> bool:
        """Return whether the namespace may still have contents."""
        return bool(item["spec"].get("finalizers"))

    def mark_deletion(self, item: JsonObject) -> None:
        """Set the phase Terminating."""
        item["status"] = {**item["status"], "phase": "Terminating"}


class NodeStrategy(Strategy):
    """Nodes, which start as not ready, so that no pod is placed on one before its kubelet has reported."""

    reset_by_main = ("status",)

    def admit(self, item: JsonObject, world: World) -> None:
        """Taint the new node as not ready."""
        del world
        taints = item["spec"].get("taints", [])
        if not any(each["key"] == _NOT_READY["key"] and each["effect"] == "NoSchedule" for each in taints):
            item["spec"]["taints"] = [*taints, dict(_NOT_READY)]

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the taints."""
        seen = set()
        for index, taint in enumerate(item["spec"].get("taints", ())):
            path = f"spec.taints[{index}]"
            if not taint.get("key"):
                yield required(f"{path}.key")
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                words = ("NoSchedule", "PreferNoSchedule", "NoExecute")
                yield unsupported(f"{path}.effect", taint.get("effect"), words)
            key = (taint.get("key"), taint.get("effect"))
            if key in seen:
                yield FieldError(path, "FieldValueDuplicate", f"Duplicate value: {key[0]}:{key[1]}")
            seen.add(key)


class PriorityClassStrategy(Strategy):
    """PriorityClasses, whose value is immutable."""

    counts_generations = True

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the value."""
        name, value = item["metadata"]["name"], item["value"]
        # Higher values are reserved for system pods.
        if value > _MAX_USER_PRIORITY and not name.startswith("system-"):
            why = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
            yield FieldError("value", "FieldValueForbidden", f"Forbidden: {why}")

    def fill(self, item: JsonObject) -> None:
        """Set the default preemption policy."""
        item.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the changes that are not allowed."""
        # Pods keep the number that they were created with; a change would affect only new pods.
        if new["value"] != old["value"]:
            yield FieldError("value", "FieldValueForbidden", "Forbidden: may not be changed in an update.")
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            yield invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")


class DisruptionBudgetStrategy(StatusStrategy):
    """PodDisruptionBudgets."""

    allows_unconditional_update = False

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield a fault if both limits are set."""
        # The two could contradict each other as soon as the number of pods changes.
        if {"minAvailable", "maxUnavailable"} <= item["spec"].keys():
            why = "minAvailable and maxUnavailable cannot be both set"
            yield invalid_value("spec", item["spec"], why)


class LeaseStrategy(Strategy):
    """Leases: PUT may create them, and must include the resourceVersion."""

    allows_unconditional_update = False
    allows_create_on_update = True

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the numbers."""
        spec = item["spec"]
        if spec.get("leaseDurationSeconds", 1) <= 0:
            yield invalid_value(
                "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
            )
        if spec.get("leaseTransitions", 0) < 0:
            why = "must be greater than or equal to 0"
            yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], why)


class SecretStrategy(Strategy):
    """Secrets: `stringData` is merged into `data`, and the type is immutable."""

    def fill(self, item: JsonObject) -> None:
        """Encode the plain text in `stringData`."""
        # `stringData` is write-only: clients read only `data`.
        for key, text in item.pop("stringData", {}).items():
            item.setdefault("data", {})[key] = b64encode(text.encode()).decode()

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield changes of the type, and of the data of an immutable secret."""
        if new.get("type") != old.get("type"):
            yield invalid_value("type", new.get("type"), "field is immutable")
        yield from _immutable_data_faults(new, old, ("data",))


class ConfigMapStrategy(Strategy):
    """ConfigMaps, which may be immutable."""

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield changes of the data of an immutable map."""
        return _immutable_data_faults(new, old, ("data", "binaryData"))


def _immutable_data_faults(new: JsonObject, old: JsonObject, keys: Sequence[str]) -> Iterable[FieldError]:
    if not old.get("immutable"):
        return
    for key in ("immutable", *keys):
        if new.get(key) != old.get(key):
            why = "Forbidden: field is immutable when `immutable` is set"
            yield FieldError(key, "FieldValueForbidden", why)


class CronJobStrategy(StatusStrategy):
    """CronJobs: stored, and validated like their Jobs."""

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not allowed, or None. The names of its Jobs append a timestamp to it."""
        # Eleven of the 63 characters of a Job's name are reserved for the scheduled minute.
        longest = 52
        if len(name) > longest:
            return f"must be no more than {longest} characters"
        return subdomain_fault(name)

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the schedule and of the Job's template."""
        if not item["spec"].get("schedule"):
            yield required("spec.schedule")
        spec = {"completionMode": "NonIndexed", **item["spec"]["jobTemplate"]["spec"]}
        yield from job_spec_faults(spec, "spec.jobTemplate.spec")


class CountedStrategy(Strategy):
    """A kind with a generation but without a status."""

    counts_generations = True


class WebhookStrategy(CountedStrategy):
    """Webhook configurations: stored, but never called."""

    allows_unconditional_update = False


class ApiServiceStrategy(StatusStrategy):
    """APIServices: stored, but no request is forwarded."""

    counts_generations = False
    allows_unconditional_update = False


class RuntimeClassStrategy(Strategy):
    """RuntimeClasses, whose PUT must include the resourceVersion."""

    allows_unconditional_update = False


class CreatedByPutStrategy(Strategy):
    """A kind that PUT may create."""

    allows_create_on_update = True


class QuotaStrategy(StatusStrategy):
    """ResourceQuotas, which have no generation."""

    counts_generations = False


class ClaimStrategy(QuotaStrategy):
    """PersistentVolumeClaims: stored, but never bound, and no pod waits for them."""

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set the initial status, which is not bound."""
        del world
        item["status"] = dict(self.blank_status)


class ServiceStrategy(Strategy):
    """Services: stored without an address, so each is headless."""

    allows_create_on_update = True
    reset_by_main = ("status",)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Record that the service has no address."""
        del world
        spec = item["spec"]
        spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not a DNS label, or None if it is one."""
        return label_fault(name)
