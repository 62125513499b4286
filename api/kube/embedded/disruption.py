"""PodDisruptionBudgets, and evictions, which delete a pod only if its budget allows a disruption.

In a real cluster, a controller maintains the number in each budget's status, and the eviction subresource
decrements it. Here the status is computed again right after every request that changes pods, their owners or
budgets, and before each eviction, so that it is never outdated.

Owners of unknown size (custom kinds with a scale) cause an error of the computation, like kinds without a
scale in a cluster; then no disruption is allowed.

Source: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go and pkg/controller/disruption.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Final, NoReturn

from api.kube.embedded.apply.errors import ApiError
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.checks import check_preconditions
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.job_status import has_condition
from api.kube.embedded.kinds.kinds import Kind, World
from api.kube.embedded.kinds.selectors import matches_labels
from api.kube.embedded.options import DeleteOptions, WriteOptions
from api.kube.embedded.store import ChangeType, Collection, ObjectStore
from api.kube.embedded.verbs import Verbs

_MANAGER: Final = "kube-controller-manager"
_BUDGETS: Final = ("policy", "poddisruptionbudgets")
_UNGUARDED_PHASES: Final = ("Succeeded", "Failed", "Pending")
_CONDITION: Final = "DisruptionAllowed"
# Owners whose number of replicas is known: each kind with its collection.
_SCALED: Final = {
    "ReplicaSet": ("apps", "replicasets"),
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
}
_COUNTED: Final = frozenset({("", "pods"), _BUDGETS, *_SCALED.values()})


class _CountError(Exception):
    """The expected number of pods of a budget cannot be determined."""


class EvictionApi:
    """Maintains the status of all budgets, and evicts pods accordingly."""

    def __init__(self, store: ObjectStore, catalog: Catalog, verbs: Verbs) -> None:
        self._catalog = catalog
        self._verbs = verbs
        # Number of budgets by namespace: without budgets, nothing has to be computed.
        self._budgets: Counter[str] = Counter()
        self._waiting: dict[str, None] = {}
        store.listen(self._note)

    def evict(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete the pod if its budget allows that. Raises ApiError, 429 if it does not.

        Pods that are finished, pending or already being deleted do not count for a budget and
        can always be deleted.
        """
        pod = self._verbs.get(kind, namespace, name).item
        check_preconditions(kind, name, pod["metadata"], options)
        self._count(namespace)
        _check(pod, self._verbs)
        if not options.dry_run:
            self._refresh(kind, pod)
        # The version was checked above, and adding the condition has changed it.
        self._verbs.delete(kind, namespace, name, replace(options, resource_version=None))

    def _refresh(self, kind: Kind, pod: JsonObject) -> None:
        """Add the condition to the pod that shows why it is terminated."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": self._verbs.now(),
        }

        def change(item: JsonObject) -> JsonObject:
            status = item.get("status") or {}
            others = [one for one in status.get("conditions") or () if one["type"] != condition["type"]]
            return {**item, "status": {**status, "conditions": [*others, condition]}}

        metadata = pod["metadata"]
        options = WriteOptions(manager="kube-apiserver", subresource="status")
        self._verbs.update(kind, metadata["namespace"], metadata["name"], change, options)

    # --- counting ---------------------------------------------------------------------------------

    def _note(
        self, collection: Collection, type_: ChangeType, item: JsonObject, previous: JsonObject | None
    ) -> None:
        """Record the namespaces whose budgets must be computed again after the request."""
        del previous
        place = (collection.group, collection.plural)
        namespace = item["metadata"].get("namespace", "")
        if place == _BUDGETS and type_ is not ChangeType.MODIFIED:
            self._budgets[namespace] += 1 if type_ is ChangeType.ADDED else -1
        if place in _COUNTED and self._budgets[namespace]:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
            self._waiting[namespace] = None

    def _run(self) -> None:
        # The status writes below are recorded as well, but change nothing when they are processed.
        waiting, self._waiting = self._waiting, {}
        for namespace in waiting:
            self._count(namespace)

    def _count(self, namespace: str) -> None:
        kind = self._catalog.find("policy", "v1", "poddisruptionbudgets")
        if kind is None or not self._budgets[namespace]:
            return
        options = WriteOptions(manager=_MANAGER, subresource="status")
        for budget in self._verbs.items(*_BUDGETS, namespace):
            status = _status(budget, self._verbs)
            if status != budget.get("status"):
                self._verbs.update(
                    kind, namespace, budget["metadata"]["name"], partial(_with_status, status), options
                )


def _status(budget: JsonObject, world: World) -> JsonObject:
    """Return the budget's status, computed from the current objects."""
    before: JsonObject = budget.get("status") or {}
    metadata, spec = budget["metadata"], budget["spec"]
    pods = [
        pod
        for pod in world.items("", "pods", metadata["namespace"])
        if matches_labels(spec.get("selector"), pod["metadata"].get("labels", {}))
    ]
    try:
        expected, desired = _expected(spec, pods, world)
    except _CountError as error:
        condition = _condition(before, "False", "SyncFailed", str(error), world.now())
        return {**before, "disruptionsAllowed": 0, "conditions": [condition]}
    healthy = sum(_is_healthy(pod) for pod in pods)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    counted = {**before, "observedGeneration": metadata["generation"]}
    word, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    return {
        **counted,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "conditions": [_condition(counted, word, reason, "", world.now())],
    }


def _with_status(status: JsonObject, budget: JsonObject) -> JsonObject:
    return {**budget, "status": status}


def _condition(status: JsonObject, word: str, reason: str, message: str, now: str) -> JsonObject:
    found = _present_condition(status)
    return {
        "type": _CONDITION,
        "status": word,
        "reason": reason,
        "message": message,
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": found["lastTransitionTime"] if found.get("status") == word else now,
    }


def _present_condition(status: JsonObject) -> JsonObject:
    return next((one for one in status.get("conditions") or () if one["type"] == _CONDITION), {})


def _expected(spec: JsonObject, pods: Sequence[JsonObject], world: World) -> tuple[int, int]:
    """Return the expected number of pods, and how many of them must be healthy. Raises _CountError."""
    if "maxUnavailable" in spec:
        expected = _scale(pods, world)
        return expected, max(expected - _scaled(spec["maxUnavailable"], expected), 0)
    least = spec.get("minAvailable")
    if isinstance(least, str):
        expected = _scale(pods, world)
        return expected, _scaled(least, expected)
    # With neither limit set, no pods are expected, and no disruption is allowed.
    return (0, 0) if least is None else (len(pods), int(least))


def _scale(pods: Sequence[JsonObject], world: World) -> int:
    """Return the number of replicas of all owners of the pods; a pod without an owner does not count."""
    sizes: dict[str, int] = {}
    for pod in pods:
        owner = _controller(pod)
        if owner is not None:
            owners = list(_line(owner, world, pod["metadata"]["namespace"]))
            if not owners:
                raise _CountError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            # The pods of a Deployment are counted by the Deployment, whichever of its ReplicaSets owns them.
            last = owners[-1]
            sizes[last["metadata"]["uid"]] = last["spec"].get("replicas", 1)
    return sum(sizes.values())


def _line(owner: JsonObject | None, world: World, namespace: str) -> Iterator[JsonObject]:
    """Yield the controller of a pod, the controller of that one, and so on, while their sizes are known."""
    while owner is not None and owner["kind"] in _SCALED:
        found = world.find(*_SCALED[owner["kind"]], owner["name"], namespace)
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return
        yield found
        owner = _controller(found)


def _controller(item: JsonObject) -> JsonObject | None:
    references = item["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), None)


def _is_healthy(pod: JsonObject) -> bool:
    return _is_ready(pod) and not pod["metadata"].get("deletionTimestamp")


def _is_ready(pod: JsonObject) -> bool:
    return has_condition(pod["status"], "Ready")


def _scaled(value: Json, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return ceil(int(value[:-1]) * total / 100)
    return int(value)


# --- evictions -----------------------------------------------------------------------------------


def _check(pod: JsonObject, world: World) -> None:
    """Raise ApiError if a budget does not allow the eviction of the pod, according to its current status."""
    metadata = pod["metadata"]
    if pod["status"].get("phase") in _UNGUARDED_PHASES or metadata.get("deletionTimestamp"):
        return
    budgets = [
        budget
        for budget in world.items(*_BUDGETS, metadata["namespace"])
        if matches_labels(budget["spec"].get("selector"), metadata.get("labels", {}))
    ]
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "InternalError", message)
    for budget in budgets:
        status = budget["status"]
        if not (_is_ready(pod) or _is_guarded(budget["spec"], status)) or status["disruptionsAllowed"]:
            continue
        _refuse(budget["metadata"]["name"], status)


def _is_guarded(spec: JsonObject, status: JsonObject) -> bool:
    """Return whether the budget also protects pods that are not ready."""
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return False
    return not status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0


def _refuse(name: str, status: JsonObject) -> NoReturn:
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    present = _present_condition(status)
    message = f"The disruption budget {name} does not allow evicting pods currently"
    if present.get("reason") == "SyncFailed":
        message += f" because it failed sync: {present['message']}"
    elif healthy <= desired:
        message = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    raise ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": message}]},
    )
