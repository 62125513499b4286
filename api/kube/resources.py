"""The kinds that Berth reads or writes, and the paths at which the API server serves them.

A `Resource` is only an address: the struct that the caller decodes an object into defines its fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from api.kube.errors import Invalid


@dataclass(frozen=True, slots=True)
class Resource:
    """One served kind: `plural` is its name in URLs, `kind` its name in objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: "batch/v1", or "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path, without the server.

        Without a name, it is the path of the collection; without a namespace (None or ""), the
        collection of a namespaced kind covers all namespaces. Raises ValueError if the parts do not
        match the kind, and `Invalid` for the names "." and "..", which no object can have and which
        would change the path of a URL.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster-scoped; it is in no namespace {namespace!r}")
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            # Quoted although valid names need no quoting, because names also come from
            # files and command lines.
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _segment(name: str) -> str:
    """Return the name quoted for a URL. Raises Invalid for names that would change the path."""
    if name in ("", ".", ".."):
        raise Invalid(f"no object can be named {name!r}; give the name of an object")
    # A colon is valid in names of RBAC objects and needs no quoting.
    return quote(name, safe=":")


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    """Return the address of one of Kueue's kinds."""
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced)


JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", namespaced=True
)
# Of the scheduler-plugins project, whose definition the cluster may have.
POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", namespaced=True)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True
)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIM_TEMPLATES = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)

WORKLOADS = _kueue("workloads", "Workload", namespaced=True)
LOCAL_QUEUES = _kueue("localqueues", "LocalQueue", namespaced=True)
CLUSTER_QUEUES = _kueue("clusterqueues", "ClusterQueue")
COHORTS = _kueue("cohorts", "Cohort")
RESOURCE_FLAVORS = _kueue("resourceflavors", "ResourceFlavor")
TOPOLOGIES = _kueue("topologies", "Topology")
ADMISSION_CHECKS = _kueue("admissionchecks", "AdmissionCheck")
PROVISIONING_CONFIGS = _kueue("provisioningrequestconfigs", "ProvisioningRequestConfig")
# Of the cluster autoscaler, whose definition the cluster may have.
PROVISIONING_REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
WORKLOAD_PRIORITY_CLASSES = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")

ADMISSION_POLICIES = Resource(
    "berth.dev", "v1alpha1", "admissionpolicies", "AdmissionPolicy", namespaced=False
)
