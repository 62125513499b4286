"""What must hold: at each commit whatever goes wrong, and at rest once everything works again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterable, Mapping

from tests.admission.controller.tenancy import QUOTAS, cpus_of
from tests.faults.apiserver import ApiServer, Request
from tests.faults.etcd import Change, Etcd, Key, Object
from tests.faults.loop import ShuffledLoop
from tests.faults.phases import Phase, has_admission, is_true
from tests.faults.redis import ModelRedis
from tests.faults.replica import TIMING, Replica
from tests.faults.standins import is_over

# What only a leader may send.
_LEADERS = frozenset(
    {Phase.ADMIT, Phase.START, Phase.EVICT, Phase.STOP, Phase.RELEASE, Phase.FENCE, Phase.FINISH}
)

# More writes than this to one object within these seconds by one process mean that it writes without a pause.
# Statuses of queues are written most often, up to 11 times.
_MANY_WRITES, _SPIN_SECONDS = 40, 10.0


class SendLaws:
    """Looks at each request that a process sends. `broken` is as in CommitLaws."""

    def __init__(self, loop: ShuffledLoop) -> None:
        self.broken: list[str] = []
        self._loop = loop
        # When each process last wrote to each object.
        self._sent: dict[tuple[str, str, Key], deque[float]] = {}

    def see(self, request: Request) -> None:
        """Check that the process does not write to one object over and over."""
        # A lease that cannot be renewed is tried at a steady pace until it has run out.
        if not request.is_write or request.key.plural == "leases":
            return
        now, key = self._loop.time(), request.key
        name = key.name or request.body["metadata"]["name"]
        address = request.process, request.method, key._replace(name=name)
        sent = self._sent.setdefault(address, deque(maxlen=_MANY_WRITES))
        if len(sent) == _MANY_WRITES and now - sent[0] < _SPIN_SECONDS:
            self.broken.append(
                f"spinning: {request.process} has sent {_MANY_WRITES} writes ({request.method}) to "
                f"{key.plural} {name} within {now - sent[0]:.1f} s at {now:.3f}"
            )
            # One sentence for so many writes.
            sent.clear()
        sent.append(now)


class CommitLaws:
    """Looks at each commit. `broken` holds one sentence for each law that was broken, in order."""

    def __init__(
        self, etcd: Etcd, server: ApiServer, loop: ShuffledLoop, *, tolerated: Container[str]
    ) -> None:
        """`tolerated` are the uids of Workloads that another program has admitted."""
        self._tolerated = tolerated
        self.broken: list[str] = []
        self._etcd = etcd
        self._server = server
        self._loop = loop
        # Which process took the lease, and when.
        self._taken: list[tuple[float, str]] = []
        # When somebody last deleted it: another may take it at once, and its holder does not know.
        self._lease_deleted_at = -math.inf
        etcd.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        found: Iterable[str | None] = ()
        match change.key.plural:
            case "leases":
                found = (self._fence_kept(change),)
                self._note_lease(change)
            case "workloads":
                found = (
                    *self._over_quota(),
                    self._admitted_otherwise(change),
                    self._released_under_job(change),
                    self._sent_without_lease(),
                )
            case "jobs":
                found = (self._started_alone(change), self._sent_without_lease())
        at = f"at {self._loop.time():.3f} by the commit of {change.key.name}"
        self.broken += [f"{sentence} {at}" for sentence in found if sentence is not None]

    def _note_lease(self, change: Change) -> None:
        if change.now is None:
            self._lease_deleted_at = self._loop.time()
            return
        holder = change.after.item["spec"].get("holderIdentity") or ""
        if holder and (not self._taken or self._taken[-1][1] != holder):
            self._taken.append((self._loop.time(), holder))

    def _over_quota(self) -> Iterable[str]:
        return over_quota(usage_of(self._etcd, but=self._tolerated))

    def _fence_kept(self, change: Change) -> str | None:
        """Each process that takes the lease raises its number."""
        before, now = change.before, change.now
        if before is None or now is None or not now["spec"].get("holderIdentity"):
            return None
        old, new = before.item["spec"], now["spec"]
        has_changed = old.get("holderIdentity") != new["holderIdentity"]
        is_raised = new["leaseTransitions"] > old.get("leaseTransitions", 0)
        return (
            None if is_raised or not has_changed else "fence: not raised by the process that took the lease"
        )

    def _admitted_otherwise(self, change: Change) -> str | None:
        """An admission that holds is not written over, and is of the spec that the Workload has."""
        before, now = change.before.item if change.before is not None else None, change.now
        if now is None or not has_admission(now):
            return None
        admission = now["status"]["admission"]
        if before is not None and has_admission(before) and before["status"]["admission"] != admission:
            return "admission: written over with another"
        (assignment,) = admission["podSetAssignments"]
        is_as_asked = assignment["resourceUsage"]["cpu"] == str(cpus_of(now))
        return None if is_as_asked else "admission: not of the spec that the Workload has"

    def _released_under_job(self, change: Change) -> str | None:
        """Quota is given back only once the Job that uses it has stopped."""
        before = change.before.item if change.before is not None else None
        if before is None or not has_admission(before):
            return None
        job = self._job_of(before)
        if job is None or is_over(job) or (change.now is not None and has_admission(change.now)):
            return None
        is_running = not job["spec"]["suspend"] or job.get("status", {}).get("active")
        return f"release: the Job {job['metadata']['name']} still runs" if is_running else None

    def _started_alone(self, change: Change) -> str | None:
        """No Job runs without an admitted Workload."""
        job = change.now
        if job is None or job["spec"]["suspend"] or is_over(job):
            return None
        if change.before is None or not change.before.item["spec"]["suspend"]:
            return None
        uid = job["metadata"]["uid"]
        owned = [item for item in self._workloads() if _owner(item) == uid]
        is_admitted = any(has_admission(item) and is_true(item, "Admitted") for item in owned)
        return None if is_admitted else "start: the Job has no admitted Workload"

    def _sent_without_lease(self) -> str | None:
        """No write is sent by a process after another has taken the lease, unless that was deleted."""
        request = self._server.committing
        if request is None or request.phase not in _LEADERS or self._etcd.restores:
            return None
        if request.sent_at - self._lease_deleted_at < TIMING.duration_seconds:
            return None
        holder = next((name for at, name in reversed(self._taken) if at <= request.sent_at), "")
        if holder == request.process:
            return None
        return f"lease: {request.process} sent the phase {request.phase} while {holder or 'no process'} led"

    def _job_of(self, workload: Object) -> Object | None:
        uid = _owner(workload)
        jobs = (stored.item for stored in self._etcd.of("jobs"))
        return next((job for job in jobs if job["metadata"]["uid"] == uid), None)

    def _workloads(self) -> list[Object]:
        return [stored.item for stored in self._etcd.of("workloads")]


def over_quota(used: Mapping[str, int]) -> Iterable[str]:
    """Yield a sentence for each quota that is exceeded."""
    total = sum(nominal for nominal, _ in QUOTAS.values())
    if sum(used.values()) > total:
        yield f"quota: the cohort has {total} and uses {sum(used.values())}"
    for name, (nominal, borrowing) in QUOTAS.items():
        if used[name] > nominal + borrowing:
            yield f"quota: {name} has {nominal}+{borrowing} and uses {used[name]}"


def usage_of(etcd: Etcd, *, but: Container[str] = ()) -> dict[str, int]:
    """Return the CPUs in use by ClusterQueue, as the cluster shows it, `but` for these uids."""
    used = dict.fromkeys(QUOTAS, 0)
    for stored in etcd.of("workloads"):
        if has_admission(stored.item) and stored.item["metadata"]["uid"] not in but:
            used[stored.item["status"]["admission"]["clusterQueue"]] += cpus_of(stored.item)
    return used


def broken_at_rest(etcd: Etcd, store: ModelRedis, replicas: Iterable[Replica]) -> list[str]:
    """Return a sentence for each thing that is not as it must be once nothing happens any more."""
    return [
        *over_quota(usage_of(etcd)),
        *_left_waiting(etcd),
        *_jobs_out_of_step(etcd),
        *_wrong_statuses(etcd),
        *(f"store: {field} is still reserved" for field in store.reservations()),
        *(sentence for replica in replicas for sentence in _wrong_books(etcd, replica)),
    ]


def _left_waiting(etcd: Etcd) -> Iterable[str]:
    """All that fits runs."""
    used = usage_of(etcd)
    free = sum(nominal for nominal, _ in QUOTAS.values()) - sum(used.values())
    for stored in etcd.of("workloads"):
        item = stored.item
        if has_admission(item) or is_true(item, "Finished") or "deletionTimestamp" in item["metadata"]:
            continue
        nominal, borrowing = QUOTAS[item["spec"]["queueName"]]
        if cpus_of(item) <= min(free, nominal + borrowing - used[item["spec"]["queueName"]]):
            yield f"liveness: {item['metadata']['name']} fits and waits"


def _jobs_out_of_step(etcd: Etcd) -> Iterable[str]:
    """Each Job has one Workload, and runs if and only if that is admitted."""
    owned: dict[str, list[Object]] = {}
    for stored in etcd.of("workloads"):
        owned.setdefault(_owner(stored.item), []).append(stored.item)
    for stored in etcd.of("jobs"):
        job = stored.item
        name, own = job["metadata"]["name"], owned.get(job["metadata"]["uid"], [])
        if is_over(job):
            if any(not is_true(workload, "Finished") for workload in own):
                yield f"liveness: {name} has ended and its Workload has not"
        elif len(own) != 1:
            yield f"liveness: {name} has {len(own)} Workloads"
        elif job["spec"]["suspend"] == has_admission(own[0]):
            yield f"liveness: {name} has suspend={job['spec']['suspend']}, unlike its Workload"


def _wrong_statuses(etcd: Etcd) -> Iterable[str]:
    used = usage_of(etcd)
    for stored in etcd.of("clusterqueues"):
        name = stored.item["metadata"]["name"]
        flavors = stored.item.get("status", {}).get("flavorsReservation") or [
            {"resources": [{"total": None}]}
        ]
        shown = flavors[0]["resources"][0]["total"]
        if shown != str(used[name]):
            yield f"status: {name} shows {shown} and uses {used[name]}"


def _wrong_books(etcd: Etcd, replica: Replica) -> Iterable[str]:
    """What a replica believes is what the cluster shows."""
    engine = replica.cluster_state.engine
    engine.validate()
    if engine.statistics().assumed:
        yield f"books: {replica.name} still assumes what is not written"
    believed = {key.name for key, _ in engine.workloads.admissions()}
    shown = {stored.item["metadata"]["name"] for stored in etcd.of("workloads") if has_admission(stored.item)}
    if believed != shown:
        yield f"books: {replica.name} believes {sorted(believed)} and the cluster shows {sorted(shown)}"


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner["kind"] == "Job"), "")
