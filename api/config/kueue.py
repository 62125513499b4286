"""Kueue's `Configuration` (config.kueue.x-k8s.io/v1beta2), every documented field of it.

A cluster that changes over hands its file to Berth as it is. What Berth does not act upon is read and checked
all the same, and said once in the log, so that nobody believes in a setting without effect. Units: durations
are read to seconds. Defaults are Kueue's.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.config.fields import Duration, NaturalNumber, Port, Section, Selector
from api.models.common import Quantity

LEASE_NAME = "c1f6bfd2.kueue.x-k8s.io"
"""The Lease that tells a live Kueue."""


class Webhook(Section):
    """Where the webhook server listens."""

    port: Port = 9443
    """TCP port."""
    host: str = ""
    """Address to bind; empty is all."""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"
    """Folder with tls.crt and tls.key."""


class LeaderElection(Section):
    """Which of several replicas decides."""

    leader_elect: bool = True
    """Whether replicas elect a leader."""
    lease_seconds: Duration | None = Field(default=None, alias="leaseDuration")
    """How long a silent leader is still believed in. Kueue: 15 s."""
    deadline_seconds: Duration | None = Field(default=None, alias="renewDeadline")
    """When a leader that cannot renew stops by itself. Kueue: 10 s."""
    renew_seconds: Duration | None = Field(default=None, alias="retryPeriod")
    """How often the lease is renewed. Kueue: 2 s."""
    resource_name: str = LEASE_NAME
    """Name of the Lease. Berth's leases are named by shard, so that both are told apart."""
    resource_namespace: str = ""
    """Namespace of the Lease; empty is the own one."""
    resource_lock: Literal["leases"] = "leases"
    """Kind of the lock."""


class CustomLabel(Section):
    """A label or annotation of an object that becomes a label of its metrics."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
    """Metric label, with `custom_` put before it."""
    source_label_key: str = ""
    """Label to read; default is `name`."""
    source_annotation_key: str = ""
    """Annotation to read instead."""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    """Kind of object to read from."""
    tracked_values: list[str] | None = None
    """Values that are told apart; others are counted together."""


class LocalQueueMetrics(Section):
    """Metrics per LocalQueue."""

    enable: bool = True
    """Whether there are any."""
    local_queue_selector: Selector | None = None
    """LocalQueues that have them; absent is all."""


class Metrics(Section):
    """Prometheus metrics."""

    bind_address: str = ":8443"
    """Where they are served; "0" is nowhere."""
    enable_cluster_queue_resources: bool = False
    """Whether quota and usage of every ClusterQueue are exported: a series per flavor and resource."""
    custom_labels: Annotated[list[CustomLabel], Field(max_length=20)] = Field(default_factory=list)
    """Labels and annotations that become labels of metrics."""
    local_queue_metrics: LocalQueueMetrics = Field(default_factory=LocalQueueMetrics)
    """Metrics per LocalQueue."""


class Health(Section):
    """Probes."""

    health_probe_bind_address: str = ":8081"
    """Where they are answered; "0" is nowhere."""
    readiness_endpoint_name: str = "readyz"
    """Path of the readiness probe."""
    liveness_endpoint_name: str = "healthz"
    """Path of the liveness probe."""


class Controller(Section):
    """Settings of the controllers."""

    group_kind_concurrency: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Reconciliations at once, by Kind.group."""
    cache_sync_timeout: str | int | None = None
    """How long to wait for the first lists: nanoseconds or a duration. Kueue: 2 minutes."""


class Tls(Section):
    """TLS of the servers."""

    min_version: Literal["", "VersionTLS12", "VersionTLS13"] = ""
    """Oldest version that is spoken."""
    cipher_suites: list[str] = Field(default_factory=list)
    """Cipher suites of TLS 1.2."""
    curve_preferences: list[str | int] = Field(default_factory=list)
    """Key exchanges, the best first."""


class InternalCertManagement(Section):
    """Certificates that the controller makes itself."""

    enable: bool = True
    """Whether it does."""
    webhook_service_name: str = "kueue-webhook-service"
    """Service that stands in the certificate."""
    webhook_secret_name: str = "kueue-webhook-server-cert"
    """Secret that keeps it."""


class RequeuingStrategy(Section):
    """When a Workload whose pods were not ready may queue again."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Its place in the queue: by the eviction, or by its creation as before."""
    backoff_limit_count: NaturalNumber | None = None
    """How often it is tried again before it is deactivated; absent is for ever."""
    backoff_base_seconds: NaturalNumber = 60
    """First wait; doubled each time."""
    backoff_max_seconds: NaturalNumber = 3600
    """Longest wait."""


class WaitForPodsReady(Section):
    """What happens when the pods of an admitted Workload are not ready in time."""

    timeout_seconds: Duration = Field(default=1800.0, alias="timeout")
    """From admission to all pods ready."""
    block_admission: bool = False
    """Whether others wait until the pods are ready."""
    requeuing_strategy: RequeuingStrategy = Field(default_factory=RequeuingStrategy)
    """When the Workload may queue again."""
    recovery_timeout_seconds: Duration | None = Field(default=None, alias="recoveryTimeout")
    """From the loss of a ready pod to all ready again; absent is `timeout`, 0 is no limit."""


class ClientConnection(Section):
    """Limits of requests to the API server."""

    qps: float = 300.0
    """Requests per second; negative is no limit."""
    burst: int = 500
    """Requests above that at once."""


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
    """Which pods are managed, besides what holds for jobs. v1beta1 alone had it; it is read here too."""

    namespace_selector: Selector | None = None
    """Namespaces whose pods are managed; absent is all whose jobs are."""
    pod_selector: Selector | None = None
    """Pods that are managed; absent is all."""


class Integrations(Section):
    """Kinds that become Workloads."""

    frameworks: list[Framework] = Field(default=["batch/job"])
    """Built-in kinds."""
    external_frameworks: list[str] = Field(default_factory=list)
    """Kinds that others make Workloads of, as Kind.version.group."""
    pod_options: PodOptions = Field(default_factory=PodOptions)
    """Which pods are managed."""
    label_keys_to_copy: list[str] = Field(default_factory=list)
    """Labels of a job that its Workload gets."""


class ExternalFramework(Section):
    """A kind that is sent to worker clusters as it is."""

    name: str
    """Kind.version.group."""


class AccessProvider(Section):
    """How credentials for a ClusterProfile are got."""

    name: str
    """Name of the provider."""
    exec_config: dict[str, Any] = Field(default_factory=dict)
    """Program that gives them."""


class ClusterProfile(Section):
    """Worker clusters known through the ClusterProfile API."""

    access_providers: list[AccessProvider] = Field(default_factory=list)
    """How credentials are got."""


class IncrementalDispatcher(Section):
    """Worker clusters tried a few at a time."""

    step_size: Annotated[int, Field(ge=1)] = 3
    """Clusters that are added at each step."""


class MultiKueue(Section):
    """Work sent to other clusters."""

    gc_interval_seconds: Duration = Field(default=60.0, alias="gcInterval")
    """Time between looks for remote objects that nobody owns; 0 is never."""
    origin: str = "multikueue"
    """Label value by which remote objects are known as ours."""
    worker_lost_timeout_seconds: Duration = Field(default=900.0, alias="workerLostTimeout")
    """How long a check stays Ready when its worker cluster is lost."""
    dispatcher_name: str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
    """Who chooses the clusters."""
    external_frameworks: Annotated[list[ExternalFramework], Field(max_length=10)] = Field(
        default_factory=list
    )
    """Kinds that are sent as they are."""
    cluster_profile: ClusterProfile | None = None
    """Clusters known through the ClusterProfile API."""
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    """Settings of the incremental dispatcher."""


PreemptionStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


class FairSharing(Section):
    """Shares of a cohort by weight; off where the section is absent."""

    preemption_strategies: Annotated[list[PreemptionStrategy], Field(min_length=1)] = Field(
        default=["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    )
    """Rules for victims; the second is tried where the first finds none."""


class AdmissionFairSharing(Section):
    """LocalQueues share a ClusterQueue by their past usage; off where the section is absent."""

    usage_half_life_seconds: Duration = Field(default=0.0, alias="usageHalfLifeTime")
    """After this time past usage counts half; 0 forgets at once."""
    usage_sampling_seconds: Duration = Field(default=300.0, alias="usageSamplingInterval")
    """Time between two steps of the decay."""
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """How much each resource counts; 1 where absent."""


class ResourceTransformation(Section):
    """Turns a requested resource into others that are counted."""

    input: str
    """Requested resource."""
    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether the input is counted beside the outputs."""
    multiply_by: str = ""
    """Resource whose requested amount multiplies the outputs."""
    outputs: dict[str, Quantity] = Field(default_factory=dict)
    """Amounts for one unit of the input."""


class DeviceClassMapping(Section):
    """Device classes that count as one resource."""

    name: str
    """Resource in quotas."""
    device_class_names: Annotated[list[str], Field(min_length=1, max_length=8)]
    """Device classes."""
    sources: list[dict[str, Any]] = Field(default_factory=list)
    """What of a device is counted."""


class Resources(Section):
    """What of a request is counted, and how."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether a resource that the ClusterQueue does not cover blocks the Workload or is let through."""
    exclude_resource_prefixes: list[str] = Field(default_factory=list)
    """Resources whose names begin so are not counted."""
    transformations: list[ResourceTransformation] = Field(default_factory=list)
    """Resources that are counted as others."""
    device_class_mappings: Annotated[list[DeviceClassMapping], Field(max_length=16)] = Field(
        default_factory=list
    )
    """Devices of dynamic allocation that are counted as resources."""


class WorkloadRetention(Section):
    """When Workloads are deleted."""

    after_finished_seconds: Duration | None = Field(default=None, alias="afterFinished")
    """After their end; absent is never, 0 at once."""
    after_deactivated_seconds: Duration | None = Field(default=None, alias="afterDeactivatedByKueue")
    """After the controller deactivated them, with their jobs; absent is never."""


class ObjectRetentionPolicies(Section):
    """When objects are deleted."""

    workloads: WorkloadRetention = Field(default_factory=WorkloadRetention)
    """Workloads."""


class VisibilityServer(Section):
    """Where the positions in queues are served."""

    bind_address: str = "0.0.0.0"
    """Address."""
    bind_port: Port = 8082
    """TCP port."""


class Configuration(Section):
    """Kueue's configuration file."""

    namespace: str = ""
    """Own namespace; empty is that of the pod."""
    webhook: Webhook = Field(default_factory=Webhook)
    """Where the webhook server listens."""
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    """Which of several replicas decides."""
    metrics: Metrics = Field(default_factory=Metrics)
    """Prometheus metrics."""
    health: Health = Field(default_factory=Health)
    """Probes."""
    pprof_bind_address: str = ""
    """Where profiles are served; empty is nowhere."""
    controller: Controller = Field(default_factory=Controller)
    """Settings of the controllers."""
    tls: Tls = Field(default_factory=Tls)
    """TLS of the servers."""
    manage_jobs_without_queue_name: bool = False
    """Whether jobs without a queue are held back too."""
    managed_jobs_namespace_selector: Selector | None = None
    """Namespaces whose jobs are managed; absent is all but kube-system and the own one."""
    internal_cert_management: InternalCertManagement = Field(default_factory=InternalCertManagement)
    """Certificates that the controller makes itself."""
    wait_for_pods_ready: WaitForPodsReady | None = Field(default_factory=WaitForPodsReady)
    """What happens when pods are not ready in time; None where that is switched off."""
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    """Limits of requests to the API server."""
    integrations: Integrations = Field(default_factory=Integrations)
    """Kinds that become Workloads."""
    multi_kueue: MultiKueue = Field(default_factory=MultiKueue)
    """Work sent to other clusters."""
    fair_sharing: FairSharing | None = None
    """Shares of a cohort by weight."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Shares of a ClusterQueue by past usage."""
    resources: Resources = Field(default_factory=Resources)
    """What of a request is counted."""
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """Features switched on and off by name."""
    object_retention_policies: ObjectRetentionPolicies = Field(default_factory=ObjectRetentionPolicies)
    """When objects are deleted."""
    visibility_server: VisibilityServer = Field(default_factory=VisibilityServer)
    """Where the positions in queues are served."""
