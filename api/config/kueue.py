"""Kueue's `Configuration` (config.kueue.x-k8s.io/v1beta2), with every documented field.

A cluster that migrates from Kueue passes its file to Berth unchanged. Fields that have no effect in Berth are
parsed and validated too, and are reported once in the log, so that such a setting is not mistaken for an
effective one. Durations are converted to seconds. The defaults are Kueue's.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.config.fields import Duration, NaturalNumber, Port, Section, Selector
from api.models.common import DnsLabel, DnsSubdomain, Quantity

LEASE_NAME = "c1f6bfd2.kueue.x-k8s.io"
"""Name of Kueue's own Lease, by which a running Kueue is detected."""


class Webhook(Section):
    """Where the webhook server listens."""

    port: Port = 9443
    """TCP port."""
    host: str = ""
    """Address to bind; empty means all addresses."""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"
    """Directory that contains tls.crt and tls.key."""


class LeaderElection(Section):
    """Leader election among several replicas."""

    leader_elect: bool = True
    """Whether replicas elect a leader."""
    lease_seconds: Duration = Field(default=15.0, alias="leaseDuration")
    """Time without a renewal after which another replica may take over."""
    deadline_seconds: Duration = Field(default=10.0, alias="renewDeadline")
    """Time without a successful renewal after which a leader begins no write."""
    renew_seconds: Duration = Field(default=2.0, alias="retryPeriod")
    """Time between renewals."""
    resource_name: str = LEASE_NAME
    """Name of the Lease. Berth names its Leases by shard, so that they differ from Kueue's."""
    resource_namespace: str = ""
    """Namespace of the Lease; empty means the controller's own namespace."""
    resource_lock: Literal["leases"] = "leases"
    """Kind of the lock object."""


class CustomLabel(Section):
    """A label or annotation of an object that is exported as a label of its metrics."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
    """Name of the metric label, without its prefix `custom_`."""
    source_label_key: str = ""
    """Label to read; defaults to `name`."""
    source_annotation_key: str = ""
    """Annotation to read instead."""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    """Kind of object to read from."""
    tracked_values: list[str] | None = None
    """Values that are exported individually; all others are combined."""


class LocalQueueMetrics(Section):
    """Metrics per LocalQueue."""

    enable: bool = True
    """Whether they are exported."""
    local_queue_selector: Selector | None = None
    """LocalQueues for which they are exported; absent selects all."""


class Metrics(Section):
    """Prometheus metrics."""

    bind_address: str = ":8443"
    """Address of the metrics endpoint; "0" disables it."""
    enable_cluster_queue_resources: bool = False
    """Whether quota and usage of every ClusterQueue are exported, one series per flavor and resource."""
    custom_labels: Annotated[list[CustomLabel], Field(max_length=20)] = Field(default_factory=list)
    """Labels and annotations that are exported as labels of metrics."""
    local_queue_metrics: LocalQueueMetrics = Field(default_factory=LocalQueueMetrics)
    """Metrics per LocalQueue."""


class Health(Section):
    """Health probes."""

    health_probe_bind_address: str = ":8081"
    """Address of the probe endpoints; "0" disables them."""
    readiness_endpoint_name: str = "readyz"
    """Path of the readiness probe."""
    liveness_endpoint_name: str = "healthz"
    """Path of the liveness probe."""


class Controller(Section):
    """Settings of the controllers."""

    group_kind_concurrency: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Number of concurrent reconciliations, by Kind.group."""
    cache_sync_timeout: str | int | None = None
    """Timeout for the initial lists, in nanoseconds or as a duration. Kueue's default is 2 minutes."""


class Tls(Section):
    """TLS of the servers."""

    min_version: Literal["", "VersionTLS12", "VersionTLS13"] = ""
    """Minimum TLS version."""
    cipher_suites: list[str] = Field(default_factory=list)
    """Cipher suites of TLS 1.2."""
    curve_preferences: list[str | int] = Field(default_factory=list)
    """Key exchange mechanisms, in order of preference."""


class InternalCertManagement(Section):
    """Certificates that the controller generates itself."""

    enable: bool = True
    """Whether the controller generates them."""
    webhook_service_name: str = "kueue-webhook-service"
    """Service that the certificate is issued for."""
    webhook_secret_name: str = "kueue-webhook-server-cert"
    """Secret that stores the certificate."""


class RequeuingStrategy(Section):
    """When a Workload whose pods did not become ready may be queued again."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Timestamp that determines its position in the queue: that of the eviction or that of its creation."""
    backoff_limit_count: NaturalNumber | None = None
    """Number of retries before the Workload is deactivated; absent means no limit."""
    backoff_base_seconds: NaturalNumber = 60
    """First back-off in seconds; doubled for each retry."""
    backoff_max_seconds: NaturalNumber = 3600
    """Maximum back-off in seconds."""


class WaitForPodsReady(Section):
    """What happens if the pods of an admitted Workload do not become ready in time."""

    timeout_seconds: Duration = Field(default=1800.0, alias="timeout")
    """Maximum time from admission until all pods are ready."""
    block_admission: bool = False
    """Whether other Workloads wait until the pods are ready."""
    requeuing_strategy: RequeuingStrategy = Field(default_factory=RequeuingStrategy)
    """When the Workload may be queued again."""
    recovery_timeout_seconds: Duration | None = Field(default=None, alias="recoveryTimeout")
    """Maximum time from the loss of a ready pod until all are ready again; absent means
    `timeout`, 0 no limit."""


class ClientConnection(Section):
    """Rate limits of requests to the API server."""

    qps: float = 300.0
    """Requests per second; negative means no limit."""
    burst: int = 500
    """Maximum burst above that rate."""


Framework = Literal[
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
]


class PodOptions(Section):
    """Which pods are managed, in addition to the settings for jobs.

    Part of v1beta1 only, but accepted here too.
    """

    namespace_selector: Selector | None = None
    """Namespaces whose pods are managed; absent selects all namespaces whose jobs are managed."""
    pod_selector: Selector | None = None
    """Pods that are managed; absent selects all."""


class Integrations(Section):
    """Kinds for which Workloads are created."""

    frameworks: list[Framework] = Field(default=["batch/job"])
    """Built-in integrations."""
    external_frameworks: list[str] = Field(default_factory=list)
    """Kinds for which other controllers create Workloads, as Kind.version.group."""
    pod_options: PodOptions = Field(default_factory=PodOptions)
    """Which pods are managed."""
    label_keys_to_copy: list[str] = Field(default_factory=list)
    """Labels that are copied from a job to its Workload."""


class ExternalFramework(Section):
    """A kind that is dispatched to worker clusters unchanged."""

    name: str
    """The kind, as Kind.version.group."""


class AccessProvider(Section):
    """How credentials for a ClusterProfile are obtained."""

    name: str
    """Name of the provider."""
    exec_config: dict[str, Any] = Field(default_factory=dict)
    """Program that returns the credentials."""


class ClusterProfile(Section):
    """Worker clusters known through the ClusterProfile API."""

    access_providers: list[AccessProvider] = Field(default_factory=list)
    """How credentials are obtained."""


class IncrementalDispatcher(Section):
    """Dispatches to worker clusters in steps of a few clusters."""

    step_size: Annotated[int, Field(ge=1)] = 3
    """Number of clusters added in each step."""


class MultiKueue(Section):
    """Dispatching of jobs to other clusters."""

    gc_interval_seconds: Duration = Field(default=60.0, alias="gcInterval")
    """Time between garbage collections of remote objects without an owner; 0 disables them."""
    origin: str = "multikueue"
    """Label value that identifies remote objects created by this controller."""
    worker_lost_timeout_seconds: Duration = Field(default=900.0, alias="workerLostTimeout")
    """How long a check stays Ready after its worker cluster is lost."""
    dispatcher_name: str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
    """Dispatcher that chooses the clusters."""
    external_frameworks: Annotated[list[ExternalFramework], Field(max_length=10)] = Field(
        default_factory=list
    )
    """Kinds that are dispatched unchanged."""
    cluster_profile: ClusterProfile | None = None
    """Worker clusters known through the ClusterProfile API."""
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    """Settings of the incremental dispatcher."""


PreemptionStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


class FairSharing(Section):
    """Weighted sharing of a cohort; disabled if the section is absent."""

    preemption_strategies: Annotated[list[PreemptionStrategy], Field(min_length=1)] = Field(
        default=["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    )
    """Rules for choosing victims; the second is used if the first finds none."""


class AdmissionFairSharing(Section):
    """LocalQueues share a ClusterQueue by past usage; disabled if the section is absent."""

    usage_half_life_seconds: Duration = Field(default=0.0, alias="usageHalfLifeTime")
    """Time after which past usage counts half; 0 discards it immediately."""
    usage_sampling_seconds: Duration = Field(default=300.0, alias="usageSamplingInterval")
    """Time between two updates of the decayed usage."""
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Weight of each resource; absent entries have weight 1."""


class ResourceTransformation(Section):
    """Maps a requested resource to other resources that are counted against quota."""

    input: str
    """The requested resource."""
    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether the input is counted in addition to the outputs."""
    multiply_by: str = ""
    """Resource whose requested amount is a factor of the outputs."""
    outputs: dict[str, Quantity] = Field(default_factory=dict)
    """Amounts that correspond to one unit of the input."""


class CelSelector(Section):
    """A CEL expression."""

    expression: Annotated[str, Field(min_length=1)]
    """The expression, of the variable `device`."""


class DeviceSelector(Section):
    """Selects devices."""

    cel: CelSelector
    """An expression that is true for them."""


class CounterOfDevices(Section):
    """A counter that devices of a driver take from, as parts of a GPU do."""

    name: DnsLabel
    """Name of the counter in the driver's ResourceSlices."""
    driver: DnsSubdomain
    """Name of the driver."""
    device_selector: DeviceSelector
    """Devices whose use of the counter is counted."""


class CapacityOfDevices(Section):
    """A capacity of a driver's devices that several claims share."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the capacity in the driver's ResourceSlices, with its domain if it has one there."""
    driver: DnsSubdomain
    """Name of the driver."""
    device_selector: DeviceSelector
    """Devices whose capacity is counted."""


class DeviceSource(Section):
    """What of a device is counted; one of the two is set."""

    counter: CounterOfDevices | None = None
    """A counter that the device takes from."""
    capacity: CapacityOfDevices | None = None
    """A capacity of a device that several claims share."""


class DeviceClassMapping(Section):
    """Device classes that are counted as one resource."""

    name: str
    """Name of the resource in quotas."""
    device_class_names: Annotated[list[str], Field(min_length=1, max_length=8)]
    """Device classes."""
    sources: list[DeviceSource] = Field(default_factory=list)
    """Properties of a device that are counted instead of the device."""


class Resources(Section):
    """Which requested resources are counted against quota, and how."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether a resource that the ClusterQueue does not cover blocks the Workload or is ignored."""
    exclude_resource_prefixes: list[str] = Field(default_factory=list)
    """Resources whose names have one of these prefixes are not counted."""
    transformations: list[ResourceTransformation] = Field(default_factory=list)
    """Resources that are mapped to others."""
    device_class_mappings: Annotated[list[DeviceClassMapping], Field(max_length=16)] = Field(
        default_factory=list
    )
    """Devices of dynamic resource allocation that are counted as resources."""


class WorkloadRetention(Section):
    """When Workloads are deleted."""

    after_finished_seconds: Duration | None = Field(default=None, alias="afterFinished")
    """Time after they finish; absent means never, 0 immediately."""
    after_deactivated_seconds: Duration | None = Field(default=None, alias="afterDeactivatedByKueue")
    """Time after the controller deactivated them; their jobs are deleted too. Absent means never."""


class ObjectRetentionPolicies(Section):
    """When objects are deleted."""

    workloads: WorkloadRetention = Field(default_factory=WorkloadRetention)
    """Retention of Workloads."""


class VisibilityServer(Section):
    """Where the visibility API, which lists pending Workloads and their positions, is served."""

    bind_address: str = "0.0.0.0"
    """Address to bind."""
    bind_port: Port = 8082
    """TCP port."""


class Configuration(Section):
    """Kueue's configuration file."""

    namespace: str = ""
    """Namespace of the controller; empty means the namespace of its pod."""
    webhook: Webhook = Field(default_factory=Webhook)
    """Where the webhook server listens."""
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    """Leader election among several replicas."""
    metrics: Metrics = Field(default_factory=Metrics)
    """Prometheus metrics."""
    health: Health = Field(default_factory=Health)
    """Health probes."""
    pprof_bind_address: str = ""
    """Address where profiles are served; empty disables them."""
    controller: Controller = Field(default_factory=Controller)
    """Settings of the controllers."""
    tls: Tls = Field(default_factory=Tls)
    """TLS of the servers."""
    manage_jobs_without_queue_name: bool = False
    """Whether jobs without a queue name are managed too."""
    managed_jobs_namespace_selector: Selector | None = None
    """Namespaces whose jobs are managed; absent selects all but kube-system and
    the controller's own namespace."""
    internal_cert_management: InternalCertManagement = Field(default_factory=InternalCertManagement)
    """Certificates that the controller generates itself."""
    wait_for_pods_ready: WaitForPodsReady | None = Field(default_factory=WaitForPodsReady)
    """What happens if pods do not become ready in time; None if the feature is disabled."""
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    """Rate limits of requests to the API server."""
    integrations: Integrations = Field(default_factory=Integrations)
    """Kinds for which Workloads are created."""
    multi_kueue: MultiKueue = Field(default_factory=MultiKueue)
    """Dispatching of jobs to other clusters."""
    fair_sharing: FairSharing | None = None
    """Weighted sharing of a cohort."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Sharing of a ClusterQueue by past usage."""
    resources: Resources = Field(default_factory=Resources)
    """Which requested resources are counted against quota."""
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """Features enabled or disabled by name."""
    object_retention_policies: ObjectRetentionPolicies = Field(default_factory=ObjectRetentionPolicies)
    """When objects are deleted."""
    visibility_server: VisibilityServer = Field(default_factory=VisibilityServer)
    """Where the visibility API is served."""
