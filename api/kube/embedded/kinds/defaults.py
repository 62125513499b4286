"""Defaults that the server sets in built-in objects, by type: constants, and rules that depend on the object.

Fields are set in place, in an object that has just been decoded. Types apply wherever they occur, so that a
container gets its defaults in a Pod, in the template of a Job, and in the nested template of a CronJob.

Source: k8s.io/kubernetes, pkg/apis/{core,batch,apps}/v1/defaults.go.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

from api.kube.embedded.apply.schema import Json, JsonObject, Schema, Type

_MAX_INT32: Final = 2**31 - 1

_WEBHOOK: Final[JsonObject] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}
_CONSTANTS: Final[Mapping[str, JsonObject]] = {
    "PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "ObjectFieldSelector": {"apiVersion": "v1"},
    "SecretVolumeSource": {"defaultMode": 0o644},
    "ConfigMapVolumeSource": {"defaultMode": 0o644},
    "DownwardAPIVolumeSource": {"defaultMode": 0o644},
    "ProjectedVolumeSource": {"defaultMode": 0o644},
    "ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "HostPathVolumeSource": {"type": ""},
    "PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "PersistentVolumeClaimStatus": {"phase": "Pending"},
    "Secret": {"type": "Opaque"},
    "NamespaceStatus": {"phase": "Active"},
    "ServiceSpec": {"sessionAffinity": "None", "type": "ClusterIP"},
    "MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "ValidatingWebhook": _WEBHOOK,
    "RuleWithOperations": {"scope": "*"},
    "ServiceReference": {"port": 443},
    "CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "ReplicaSetSpec": {"replicas": 1},
    "DaemonSetSpec": {"revisionHistoryLimit": 10},
    "StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
}


def _container(container: JsonObject) -> None:
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    # A tag that may refer to another image later is always pulled.
    is_pinned = "@" in image or tag not in ("", "latest")
    return "IfNotPresent" if is_pinned else "Always"


def _volume(volume: JsonObject) -> None:
    # A volume without a source is an emptyDir.
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}


def _job(job: JsonObject) -> None:
    _job_spec(job["spec"])
    labels = job["spec"]["template"]["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        # The same dict and not a copy: labels that are generated for the template also appear on the Job.
        job["metadata"]["labels"] = labels


def _job_spec(spec: JsonObject) -> None:
    # With parallelism alone a Job is a work queue, whose completions stay unset.
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    # A failure policy can only evaluate a pod that has finished.
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replaced)
    spec.setdefault("manualSelector", False)


def _condition_pattern(pattern: JsonObject) -> None:
    pattern["status"] = pattern["status"] or "True"


def _pod(pod: JsonObject) -> None:
    spec = pod["spec"]
    for container in [*(spec.get("containers") or ()), *spec.get("initContainers", ())]:
        resources = container["resources"]
        if limits := resources.get("limits"):
            # A request defaults to the limit.
            resources["requests"] = {**limits, **resources.get("requests", {})}
        for port in container.get("ports", ()) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port["containerPort"])
    spec.setdefault("enableServiceLinks", True)


def _namespace(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": name}


def _node_status(status: JsonObject) -> None:
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _service_port(port: JsonObject) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port", 0)


def _service_spec(spec: JsonObject) -> None:
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")


def _limit_range_item(item: JsonObject) -> None:
    if item.get("type") != "Container":
        return
    default = {**item.get("max", {}), **item.get("default", {})}
    request = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
    for key, value in (("default", default), ("defaultRequest", request)):
        if value:
            item[key] = value


def _rolling_update(**defaults: Json) -> Callable[[JsonObject], None]:
    """Return the rule that updates roll out by default, with these limits."""

    def fill(strategy: JsonObject) -> None:
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            for key, value in defaults.items():
                rolling.setdefault(key, value)

    return fill


_RULES: Final[Mapping[str, Callable[[JsonObject], None]]] = {
    "Container": _container,
    "EphemeralContainer": _container,
    "Volume": _volume,
    "Job": _job,
    "PodFailurePolicyOnPodConditionsPattern": _condition_pattern,
    "Pod": _pod,
    "Namespace": _namespace,
    "NodeStatus": _node_status,
    "ServicePort": _service_port,
    "ServiceSpec": _service_spec,
    "LimitRangeItem": _limit_range_item,
    "DeploymentStrategy": _rolling_update(maxUnavailable="25%", maxSurge="25%"),
    "DaemonSetUpdateStrategy": _rolling_update(maxUnavailable=1, maxSurge=0),
    "StatefulSetUpdateStrategy": _rolling_update(partition=0),
}


class Defaulter:
    """Sets the defaults of one built-in type.

    The fields that lead to a default are determined once, so that setting them visits only those fields.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._ways: dict[int, tuple[tuple[str, Schema], ...]] = {}
        self._leads(schema)

    def fill(self, item: JsonObject) -> None:
        """Set the defaults of `item`, a newly decoded object of the type, in place."""
        self._fill(self._schema, item)

    def _fill(self, schema: Schema, value: Json) -> None:
        match schema.type:
            case Type.ARRAY:
                for item in value or ():
                    self._fill(schema.item(), item)
            case Type.OBJECT:
                self._fill_object(schema, value)

    def _fill_object(self, schema: Schema, value: JsonObject) -> None:
        # As in the real server's generated defaulting, constants are set before nested fields, and rules are
        # applied after them, because a rule may depend on values that were set.
        for key, constant in _CONSTANTS.get(schema.name, {}).items():
            if key not in value:
                value[key] = deepcopy(constant)
        for key, field in self._ways[id(schema.properties)]:
            if key in value:
                self._fill(field, value[key])
            elif field.default is not None:
                value[key] = field.default
        if rule := _RULES.get(schema.name):
            rule(value)

    def _leads(self, schema: Schema) -> bool:
        """Record the paths to defaults below `schema`; return whether there are any."""
        if schema.type is Type.ARRAY:
            return self._leads(schema.item())
        if schema.type is not Type.OBJECT:
            return schema.default is not None
        if id(schema.properties) not in self._ways:
            ways = [(key, field) for key, field in schema.properties.items() if self._leads(field)]
            self._ways[id(schema.properties)] = tuple(ways)
        has_own = schema.name in _CONSTANTS or schema.name in _RULES
        return has_own or bool(self._ways[id(schema.properties)])
