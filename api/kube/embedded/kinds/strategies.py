"""The rules of the smaller kinds. Pods, Jobs and CRDs have modules of their own.

Kinds that only other programs act on (RBAC, webhooks, Deployments) are stored and served, and no more.
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
        """Forget any status."""
        del world
        if "status" in item:
            item["status"] = dict(self.blank_status)


class PathNameStrategy(Strategy):
    """A kind whose names need only fit into a URL, such as roles."""

    allows_create_on_update = True

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not allowed, or None."""
        return segment_fault(name)


class NamespaceStrategy(Strategy):
    """Namespaces: they go when their contents have gone."""

    reset_by_main = ("status",)

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is no DNS label, or None."""
        return label_fault(name)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set the phase, and the finalizer that waits for the contents."""
        del world
        item["status"] = {"phase": "Active"}
        # In the spec and not in the metadata: only the endpoint `finalize` may take it off.
        item["spec"]["finalizers"] = ["kubernetes"]

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        """Keep the finalizers, which have an endpoint of their own."""
        new["spec"]["finalizers"] = old["spec"].get("finalizers", [])

    def holds(self, item: JsonObject) -> bool:
        """Whether contents may still be there."""
        return bool(item["spec"].get("finalizers"))

    def mark_deletion(self, item: JsonObject) -> None:
        """Show that the namespace is on its way out."""
        item["status"] = {**item["status"], "phase": "Terminating"}


class NodeStrategy(Strategy):
    """Nodes: born unready, so that nothing is placed on one before its kubelet has spoken."""

    reset_by_main = ("status",)

    def admit(self, item: JsonObject, world: World) -> None:
        """Taint the new node as not ready."""
        del world
        taints = item["spec"].get("taints", [])
        if not any(each["key"] == _NOT_READY["key"] and each["effect"] == "NoSchedule" for each in taints):
            item["spec"]["taints"] = [*taints, dict(_NOT_READY)]

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield what is wrong with the taints."""
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
    """PriorityClasses: their value never changes."""

    counts_generations = True

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield what is wrong with the value."""
        name, value = item["metadata"]["name"], item["value"]
        # What lies above belongs to the system's own pods, which nobody may outrank.
        if value > _MAX_USER_PRIORITY and not name.startswith("system-"):
            why = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
            yield FieldError("value", "FieldValueForbidden", f"Forbidden: {why}")

    def fill(self, item: JsonObject) -> None:
        """Preempting is the default."""
        item.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the changes that are not allowed."""
        # Pods carry the number that they were created with; a new one would rank the old pods wrongly.
        if new["value"] != old["value"]:
            yield FieldError("value", "FieldValueForbidden", "Forbidden: may not be changed in an update.")
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            yield invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")


class DisruptionBudgetStrategy(StatusStrategy):
    """PodDisruptionBudgets."""

    allows_unconditional_update = False

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the contradiction of two limits."""
        # Together they could contradict each other as soon as the number of pods changes.
        if {"minAvailable", "maxUnavailable"} <= item["spec"].keys():
            why = "minAvailable and maxUnavailable cannot be both set"
            yield invalid_value("spec", item["spec"], why)


class LeaseStrategy(Strategy):
    """Leases: PUT may create them, and PUT must carry the version it saw."""

    allows_unconditional_update = False
    allows_create_on_update = True

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield numbers that make no sense."""
        spec = item["spec"]
        if spec.get("leaseDurationSeconds", 1) <= 0:
            yield invalid_value(
                "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
            )
        if spec.get("leaseTransitions", 0) < 0:
            why = "must be greater than or equal to 0"
            yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], why)


class EventStrategy(Strategy):
    """Events of both groups."""

    allows_create_on_update = True


class SecretStrategy(Strategy):
    """Secrets: `stringData` is folded into `data`, and the type never changes."""

    def fill(self, item: JsonObject) -> None:
        """Encode what was given as plain text."""
        # Write-only: readers see `data` alone, so nobody has to look in two places.
        for key, text in item.pop("stringData", {}).items():
            item.setdefault("data", {})[key] = b64encode(text.encode()).decode()

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield a changed type, and changed data of an immutable secret."""
        if new.get("type") != old.get("type"):
            yield invalid_value("type", new.get("type"), "field is immutable")
        yield from _immutable_data_faults(new, old, ("data",))


class ConfigMapStrategy(Strategy):
    """ConfigMaps, which may be declared immutable."""

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield changed data of an immutable map."""
        return _immutable_data_faults(new, old, ("data", "binaryData"))


def _immutable_data_faults(new: JsonObject, old: JsonObject, keys: Sequence[str]) -> Iterable[FieldError]:
    if not old.get("immutable"):
        return
    for key in ("immutable", *keys):
        if new.get(key) != old.get(key):
            why = "Forbidden: field is immutable when `immutable` is set"
            yield FieldError(key, "FieldValueForbidden", why)


class CronJobStrategy(StatusStrategy):
    """CronJobs: stored, and checked as far as their Jobs are."""

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not allowed, or None: a Job's name, with room for the time behind it."""
        # Of the 63 characters of a Job's name eleven are kept for the minute that it is made for.
        longest = 52
        if len(name) > longest:
            return f"must be no more than {longest} characters"
        return subdomain_fault(name)

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield what is wrong with the Job's template."""
        if not item["spec"].get("schedule"):
            yield required("spec.schedule")
        spec = {"completionMode": "NonIndexed", **item["spec"]["jobTemplate"]["spec"]}
        yield from job_spec_faults(spec, "spec.jobTemplate.spec")


class CountedStrategy(Strategy):
    """A kind whose generation counts, without a status of its own."""

    counts_generations = True


class WebhookStrategy(CountedStrategy):
    """Webhook configurations: stored, never called."""

    allows_unconditional_update = False


class ApiServiceStrategy(StatusStrategy):
    """APIServices: stored, nothing is forwarded."""

    counts_generations = False
    allows_unconditional_update = False


class RuntimeClassStrategy(Strategy):
    """RuntimeClasses, which must be put with the version that was seen."""

    allows_unconditional_update = False


class CreatedByPutStrategy(Strategy):
    """A kind that PUT may create."""

    allows_create_on_update = True


class QuotaStrategy(StatusStrategy):
    """ResourceQuotas, whose generation does not count."""

    counts_generations = False


class ClaimStrategy(QuotaStrategy):
    """PersistentVolumeClaims: stored; nobody binds one, and no pod waits for it."""

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Begin as not bound."""
        del world
        item["status"] = dict(self.blank_status)


class ServiceStrategy(Strategy):
    """Services: stored; nobody gives them an address, so each is headless."""

    allows_create_on_update = True
    reset_by_main = ("status",)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Say that there is no address."""
        del world
        spec = item["spec"]
        spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is no DNS label, or None."""
        return label_fault(name)
