"""A witness of what happened: every version of Workloads, Jobs and Pods of a namespace, from the API server.

It knows nothing of the controller. What must hold at every moment (quota, a Job started once) is worked out
from the versions in the order in which the server made them.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

from tests.controlplane import Rest, RestError
from tests.integration.manifests import KUEUE, Object, is_true
from tests.integration.waiting import wait_for

# A watch ends by itself after this long, so that its thread can look whether it is still wanted.
_WATCH_SECONDS = 1
_GONE = 410


class Witness:
    """Watches one namespace from `__enter__` to `__exit__`; ask it afterwards, or after `catch_up`."""

    def __init__(self, rest: Rest, namespace: str) -> None:
        self._streams = {
            kind: _Stream(rest, f"/{base}/namespaces/{namespace}/{plural}", kind)
            for kind, base, plural in (
                ("Workload", f"apis/{KUEUE}", "workloads"),
                ("Job", "apis/batch/v1", "jobs"),
                ("Pod", "api/v1", "pods"),
            )
        }

    def __enter__(self) -> Self:
        for stream in self._streams.values():
            stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.cut()
        for stream in self._streams.values():
            stream.wait_ended()

    @property
    def gaps(self) -> int:
        """How often the server had forgotten where a watch was, so that versions may have gone unseen."""
        return sum(stream.gaps for stream in self._streams.values())

    def catch_up(self) -> None:
        """Return when it has seen everything up to now."""
        for stream in self._streams.values():
            stream.catch_up()

    # --- what happened ----------------------------------------------------------------------------

    def workloads(self, start: int = 0) -> list[tuple[str, Object]]:
        """Return every version of a Workload from the `start`th on, each with its kind of change."""
        return self._streams["Workload"].changes[start:]

    def peak_reserved(self, *cluster_queues: str) -> int:
        """Return the most CPUs that Workloads of these ClusterQueues held at once."""
        return self._peak("Workload", lambda workload: _reserved_cpus(workload, cluster_queues))

    def peak_running(self) -> int:
        """Return the most CPUs that Jobs not suspended asked for at once."""
        return self._peak("Job", _running_cpus)

    def starts(self, job: str) -> int:
        """Return how often the Job went from suspended to not suspended."""
        states = [one["spec"].get("suspend", False) for one in self._versions("Job", job)]
        return sum(1 for before, after in itertools.pairwise(states) if before and not after)

    def workload_uids(self, job: str) -> set[str]:
        """Return every Workload that the Job ever owned."""
        return self._owned("Workload", job)

    def pod_uids(self, job: str) -> set[str]:
        """Return every Pod that the Job ever owned."""
        return self._owned("Pod", job)

    def admitted(self) -> list[str]:
        """Return the Jobs in the order in which their Workloads were first admitted."""
        found = (obj for _, obj in self._streams["Workload"].changes if is_true(obj, "Admitted"))
        return list(dict.fromkeys(obj["metadata"]["ownerReferences"][0]["name"] for obj in found))

    def _owned(self, kind: str, job: str) -> set[str]:
        found = (obj["metadata"] for _, obj in self._streams[kind].changes)
        return {
            metadata["uid"]
            for metadata in found
            if any(owner["name"] == job for owner in metadata.get("ownerReferences") or ())
        }

    def _versions(self, kind: str, name: str) -> list[Object]:
        return [obj for _, obj in self._streams[kind].changes if obj["metadata"]["name"] == name]

    def _peak(self, kind: str, measure: Callable[[Object], int]) -> int:
        present: dict[str, int] = {}
        peak = 0
        for change, obj in self._streams[kind].changes:
            present[obj["metadata"]["uid"]] = 0 if change == "DELETED" else measure(obj)
            peak = max(peak, sum(present.values()))
        return peak


class _Stream:
    """List and watch of one collection in a thread."""

    def __init__(self, rest: Rest, path: str, kind: str) -> None:
        self.changes: list[tuple[str, Object]] = []
        self.gaps = 0
        self._rest = rest
        self._path = path
        self._version = ""
        self._present: dict[str, Object] = {}
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"witness-{kind}")

    def start(self) -> None:
        self._list()
        self._thread.start()

    def cut(self) -> None:
        """Break the watch; one that is just being opened ends by itself."""
        self._stopping.set()
        if self._socket is not None:
            with suppress(OSError):
                # As the plain socket that it is: TLS would be unwrapped under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def wait_ended(self) -> None:
        self._thread.join(30.0)
        assert not self._thread.is_alive(), "the witness does not end"

    def catch_up(self) -> None:
        wanted = {_identity(item) for item in self._rest.get(self._path)["items"]}
        wait_for(
            lambda: wanted <= {_identity(obj) for _, obj in self.changes},
            f"all of {self._path} by the witness",
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except RestError as error:
                if error.status == _GONE:
                    self.gaps += 1
                    self._list()
                self._stopping.wait(0.1)
            except OSError:  # the server is being restarted
                self._stopping.wait(0.1)

    def _list(self) -> None:
        listed = self._rest.get(self._path)
        items = {item["metadata"]["uid"]: item for item in listed["items"]}
        for uid in self._present.keys() - items.keys():
            self._take("DELETED", self._present[uid])
        for item in items.values():
            self._take("ADDED", item)
        self._version = listed["metadata"]["resourceVersion"]

    def _watch(self) -> None:
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={_WATCH_SECONDS}"
        path = f"{self._path}?{query}&resourceVersion={self._version}"
        for event in self._rest.stream(path, on_connected=self._note_socket):
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise RestError(obj.get("code", 0), obj.get("reason", ""), obj.get("message", ""))
            if kind != "BOOKMARK":
                self._take(kind, obj)
            self._version = obj["metadata"]["resourceVersion"]

    def _note_socket(self, connected: socket.socket) -> None:
        self._socket = connected

    def _take(self, change: str, obj: Object) -> None:
        self.changes.append((change, obj))
        if change == "DELETED":
            self._present.pop(obj["metadata"]["uid"], None)
        else:
            self._present[obj["metadata"]["uid"]] = obj


def _identity(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]


def _reserved_cpus(workload: Object, cluster_queues: Iterable[str]) -> int:
    admission: Any = workload.get("status", {}).get("admission")
    if admission is None or admission["clusterQueue"] not in cluster_queues or is_true(workload, "Finished"):
        return 0
    return sum(_cpus(assigned.get("resourceUsage") or {}) for assigned in admission["podSetAssignments"])


def _running_cpus(job: Object) -> int:
    spec = job["spec"]
    if spec.get("suspend") or is_true(job, "Complete") or is_true(job, "Failed"):
        return 0
    containers = spec["template"]["spec"]["containers"]
    each = sum(_cpus(container.get("resources", {}).get("requests") or {}) for container in containers)
    return int(spec.get("parallelism", 1)) * each


def _cpus(resources: Object) -> int:
    return int(resources.get("cpu", 0))
