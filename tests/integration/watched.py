"""What must hold of the Workloads of two queues of a cohort and of a third on nodes, version by version.

`Watched` takes each version of a Workload as the API server tells it. It counts quota by the objects alone
(`admission.simulation.ledger`) and says at any time which waiting Workloads fit and which may preempt others,
by the rules of Kueue and not by the code of the controller.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from admission.simulation.ledger import Holding, QuotaLedger, holding_of
from admission.simulation.records import ObjectRecord
from api.objects.queues import ClusterQueueObject
from api.objects.workloads import WorkloadObject
from api.parsing.quantities import amount
from api.workload_decoding import to_workload
from queues.quota.resources import FlavorResource
from tests.integration.manifests import Object, condition, is_true

HOST = "kubernetes.io/hostname"
CPUS_A_NODE = 8


class Watched:
    """What the versions of Workloads say happened, and what must hold of each version."""

    def __init__(self) -> None:
        self.ledger = QuotaLedger()
        # ClusterQueues by the names of their LocalQueues, and those of them with the strategy StrictFIFO.
        self.cluster_queues: dict[str, str] = {}
        self.strict: set[str] = set()
        self.present: dict[str, Object] = {}
        # Those of the last rest: an admission may have been decided before others came.
        self.known: frozenset[str] = frozenset()
        self.admissions = 0
        self.preemptions = 0

    def set_queue(self, name: str, queue: Object) -> None:
        """Take the ClusterQueue behind the LocalQueue `name` as it is from now on."""
        full = queue["metadata"]["name"]
        self.cluster_queues[name] = full
        if queue["spec"].get("queueingStrategy") == "StrictFIFO":
            self.strict.add(full)
        self.ledger.apply(
            ObjectRecord(at=0.0, object=msgspec.json.decode(json.dumps(queue), type=ClusterQueueObject))
        )

    def see(self, change: str, workload: Object) -> None:
        """Take the next version of a Workload, and check what must hold of it."""
        uid, before = workload["metadata"]["uid"], self.present.get(workload["metadata"]["uid"])
        preempts = is_true(workload, "Preempted") and not is_true(before, "Preempted")
        if preempts:
            # Before the ledger forgets what a queue has borrowed.
            self._check_victim(workload)
        decoded = msgspec.json.decode(json.dumps(workload), type=WorkloadObject)
        # As in Kueue, the quota of one that is deactivated is free at once, also before its eviction is
        # written. Source: Kueue, pkg/controller/core/workload_controller.go, Update.
        is_gone = change == "DELETED" or not is_active(workload)
        self.ledger.apply(ObjectRecord(at=0.0, object=decoded, is_deleted=is_gone))
        if change == "DELETED":
            self.present.pop(uid, None)
            return
        self.present[uid] = workload
        if holds(workload) and not holds(before):
            self._check_admission(workload, decoded)

    def _check_admission(self, workload: Object, decoded: WorkloadObject) -> None:
        self.admissions += 1
        name = workload["metadata"]["name"]
        holding = holding_of(decoded)
        assert holding is not None
        over = [use for use in self.ledger.path(holding) if use.is_over]
        assert not over, f"{name} got more than there is: {over}"
        assert not is_true(workload, "Evicted"), f"{name} was admitted before it had stopped"
        if holding.cluster_queue in self.strict:
            priority = priority_of(workload)
            passed = [
                one["metadata"]["name"]
                for one in self.present.values()
                if one["metadata"]["uid"] in self.known
                and is_pending(one)
                and queue_of(one) == queue_of(workload)
                and priority_of(one) > priority
            ]
            assert not passed, f"{name} was admitted before {passed}"
        for host, cpus in self.placed().items():
            assert cpus <= CPUS_A_NODE, f"{host} has {cpus} CPUs of Workloads"

    def _check_victim(self, victim: Object) -> None:
        self.preemptions += 1
        said = condition(victim, "Preempted")
        found = re.search(r"\(UID: ([^,]+),", said["message"])
        assert found is not None, said
        preemptor = self.present[found[1]]
        if said["reason"] == "InClusterQueue":
            assert priority_of(victim) < priority_of(preemptor)
            assert queue_of(victim) == queue_of(preemptor)
            return
        assert said["reason"] == "InCohortReclamation", said
        name = victim["status"]["admission"]["clusterQueue"]
        nominal, used = self.ledger.nominal(name), self.ledger.used(name)
        borrowed = [key for key, cpus in used.items() if cpus > nominal.get(key, 0)]
        assert borrowed, f"{name} had borrowed nothing"

    def would_fit(self, workload: Object, pair: FlavorResource, *, without: Iterable[Object] = ()) -> bool:
        """Return whether the quota has room for a Workload once those of `without` are gone."""
        holding = Holding(
            cluster_queue=self.cluster_queues[queue_of(workload)], amounts={pair: cpus_of(workload)}
        )
        return self._ledger_without(without).would_fit(holding)

    def must_preempt(self, workload: Object, pair: FlavorResource) -> bool:
        """Return whether a waiting Workload that does not fit is to preempt others, as far as quota goes.

        For queues that preempt lower priorities of their own and reclaim from every borrower, but have no
        `borrowWithinCohort`. Source: Kueue, pkg/scheduler: classicalPreemptions in
        preemption/preemption.go, and fitsResourceQuota in flavorassigner/flavorassigner.go.
        """
        name = self.cluster_queues[queue_of(workload)]
        nominal, used = self.ledger.nominal(name).get(pair, 0), self.ledger.used(name).get(pair, 0)
        if cpus_of(workload) > nominal:
            return False
        lower = self.lower_than(workload)
        if self.would_fit(workload, pair, without=lower):
            return True
        # Others are left to reclaim from. A queue that uses its nominal quota up may not.
        kept = self._ledger_without(lower).used(name).get(pair, 0)
        return used < nominal and kept + cpus_of(workload) <= nominal

    def lower_than(self, workload: Object) -> list[Object]:
        """Return the Workloads with quota of the same queue that have a lower priority."""
        return [
            one
            for one in self.present.values()
            if holds(one)
            and is_active(one)
            and queue_of(one) == queue_of(workload)
            and priority_of(one) < priority_of(workload)
        ]

    def _ledger_without(self, workloads: Iterable[Object]) -> QuotaLedger:
        """Return the ledger as it would be without these Workloads."""
        ledger = copy.deepcopy(self.ledger)
        for one in workloads:
            decoded = msgspec.json.decode(json.dumps(one), type=WorkloadObject)
            ledger.apply(ObjectRecord(at=0.0, object=decoded, is_deleted=True))
        return ledger

    def placed(self, *, without: Iterable[Object] = ()) -> Counter[str]:
        """Return how many CPUs Workloads hold of each node, once those of `without` are gone."""
        found: Counter[str] = Counter()
        gone = [one["metadata"]["uid"] for one in without]
        for one in self.present.values():
            if not holds(one) or not is_active(one) or one["metadata"]["uid"] in gone:
                continue
            workload = to_workload(msgspec.json.decode(json.dumps(one), type=WorkloadObject))
            assert workload.admission is not None
            for assigned in workload.admission.pod_sets:
                if assigned.topology is not None:
                    cpus = assigned.usage["cpu"] // 1000 // assigned.count
                    for domain in assigned.topology.domains:
                        found[domain.values[-1]] += domain.count * cpus
        return found


def holds(workload: Object | None) -> bool:
    """Return whether a Workload holds quota."""
    has_quota = is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")
    return workload is not None and has_quota and "admission" in workload["status"]


def is_active(workload: Object) -> bool:
    """Return whether a Workload is not deactivated."""
    return workload["spec"].get("active", True) is not False


def is_pending(workload: Object) -> bool:
    """Return whether a Workload waits in its queue."""
    is_over = is_true(workload, "Finished") or is_true(workload, "QuotaReserved")
    return not is_over and is_active(workload)


def queue_of(workload: Object) -> str:
    """Return the name of the LocalQueue of a Workload."""
    return str(workload["spec"]["queueName"])


def priority_of(workload: Object) -> int:
    """Return the priority of a Workload."""
    return int(workload["spec"].get("priority", 0))


def cpus_of(workload: Object) -> int:
    """Return the CPUs that a Workload requests, in thousandths."""
    (pod_set,) = workload["spec"]["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    return int(pod_set["count"]) * amount("cpu", container["resources"]["requests"]["cpu"])
