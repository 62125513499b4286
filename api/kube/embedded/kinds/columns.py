"""The table columns of built-in kinds, as the real API server prints them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.kinds.job_status import has_condition
from api.kube.embedded.kinds.kinds import Column
from api.kube.embedded.kinds.tables import age, duration, json_path


def _path(name: str, path: str, *, type_: str = "string", priority: int = 0, absent: str = "") -> Column:
    find = json_path(path)

    def value(item: JsonObject) -> str | int | None:
        found = find(item)
        return absent if found is None else found

    return Column(name=name, value=value, type=type_, priority=priority)


def _seconds_between(start: Json, end: Json) -> float:
    first = datetime.fromisoformat(start)
    last = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return (last - first).total_seconds()


def _pod_ready(pod: JsonObject) -> str:
    statuses = pod["status"].get("containerStatuses", ())
    return f"{sum(bool(each.get('ready')) for each in statuses)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: JsonObject) -> str:
    status = pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in status.get("containerStatuses", ()):
        state = container.get("state", {})
        for key in ("waiting", "terminated"):
            if reason := state.get(key, {}).get("reason"):
                return str(reason)
    if any(each.get("reason") == "SchedulingGated" for each in status.get("conditions", ())):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _pod_restarts(pod: JsonObject) -> str:
    return str(sum(each.get("restartCount", 0) for each in pod["status"].get("containerStatuses", ())))


def _job_status(job: JsonObject) -> str:
    status = job.get("status", {})
    if has_condition(status, "Complete"):
        return "Complete"
    if has_condition(status, "Failed"):
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if has_condition(status, "Suspended"):
        return "Suspended"
    if has_condition(status, "FailureTarget"):
        return "FailureTarget"
    return "SuccessCriteriaMet" if has_condition(status, "SuccessCriteriaMet") else "Running"


def _job_completions(job: JsonObject) -> str:
    succeeded = job["status"].get("succeeded", 0)
    spec = job["spec"]
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: JsonObject) -> str:
    status = job["status"]
    if "startTime" not in status:
        return ""
    return duration(_seconds_between(status["startTime"], status.get("completionTime")))


def _node_status(node: JsonObject) -> str:
    ready = next((c for c in node["status"].get("conditions", ()) if c["type"] == "Ready"), None)
    words = ["Unknown"] if ready is None else ["Ready" if ready["status"] == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _event_object(event: JsonObject) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_seen(event: JsonObject) -> str:
    times = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime")
    series = event.get("series") or {}
    latest = series.get("lastObservedTime") or next((event[key] for key in times if event.get(key)), None)
    return age(latest, datetime.now(UTC))


def _event_first_seen(event: JsonObject) -> str:
    times = ("firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    return age(next((event[key] for key in times if event.get(key)), None), datetime.now(UTC))


def _event_count(event: JsonObject) -> int:
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or event.get("deprecatedCount") or 1)


def _ready_of(item: JsonObject) -> str:
    return f"{item['status'].get('readyReplicas', 0)}/{item['spec'].get('replicas', 0)}"


def _count(key: str) -> Column:
    """Return a column with the number of entries in a map or list."""
    return Column(name=key.title(), value=lambda item: len(item.get(key) or ()), type="integer")


_LABELS_AGE: Final = Column(
    name="Age", value=lambda item: age(item["metadata"].get("creationTimestamp"), datetime.now(UTC))
)

COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "pods": (
        Column(name="Ready", value=_pod_ready),
        Column(name="Status", value=_pod_status),
        Column(name="Restarts", value=_pod_restarts),
        _LABELS_AGE,
        _path("IP", ".status.podIP", priority=1, absent="<none>"),
        _path("Node", ".spec.nodeName", priority=1, absent="<none>"),
        _path("Nominated Node", ".status.nominatedNodeName", priority=1, absent="<none>"),
    ),
    "jobs": (
        Column(name="Status", value=_job_status),
        Column(name="Completions", value=_job_completions),
        Column(name="Duration", value=_job_duration),
    ),
    "cronjobs": (
        _path("Schedule", ".spec.schedule"),
        Column(name="Suspend", value=lambda item: str(item["spec"].get("suspend", False))),
    ),
    "nodes": (
        Column(name="Status", value=_node_status),
        Column(name="Roles", value=_node_roles),
        _LABELS_AGE,
        _path("Version", ".status.nodeInfo.kubeletVersion"),
    ),
    "namespaces": (_path("Status", ".status.phase"),),
    "events": (
        Column(name="Last Seen", value=_event_seen),
        _path("Type", ".type"),
        _path("Reason", ".reason"),
        Column(name="Object", value=_event_object),
        Column(name="Message", value=lambda item: item.get("message") or item.get("note", "")),
        Column(name="First Seen", value=_event_first_seen, priority=1),
        Column(name="Count", value=_event_count, type="integer", priority=1),
        # The generated name is not informative, so it is not the first column and is shown only with -o wide.
        Column(name="Name", value=lambda item: item["metadata"]["name"], priority=1),
    ),
    "configmaps": (_count("data"),),
    "secrets": (_path("Type", ".type"), _count("data")),
    "leases": (_path("Holder", ".spec.holderIdentity"),),
    "priorityclasses": (
        _path("Value", ".value", type_="integer"),
        Column(name="Global-Default", value=lambda item: str(bool(item.get("globalDefault"))).lower()),
    ),
    "runtimeclasses": (_path("Handler", ".handler"),),
    "services": (
        _path("Type", ".spec.type"),
        _path("Cluster-IP", ".spec.clusterIP", absent="None"),
    ),
    "poddisruptionbudgets": (
        _path("Min Available", ".spec.minAvailable", absent="N/A"),
        _path("Max Unavailable", ".spec.maxUnavailable", absent="N/A"),
        _path("Allowed Disruptions", ".status.disruptionsAllowed", type_="integer", absent="0"),
    ),
    "customresourcedefinitions": (_path("Created At", ".metadata.creationTimestamp"),),
    "deployments": (Column(name="Ready", value=_ready_of),),
    "statefulsets": (Column(name="Ready", value=_ready_of),),
    "replicasets": (
        _path("Desired", ".spec.replicas", type_="integer"),
        _path("Current", ".status.replicas", type_="integer", absent="0"),
        _path("Ready", ".status.readyReplicas", type_="integer", absent="0"),
    ),
}
