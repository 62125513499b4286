"""Translation of the configuration file into the settings of each part. No other module reads both."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.runtime.logs import LogSettings
from admission.engine.settings import node_failure_settings
from admission.reconcile.deadlines import PodsReadySettings, RetentionSettings
from admission.reconcile.job.context import JobSettings
from admission.reconcile.workload.context import LifecycleSettings
from api.config.external import external_kinds
from api.config.fields import Selector
from api.config.loading import ControllerConfig
from api.identifiers import set_reads_annotations
from api.jobs.job_workload import CopiedKeys
from api.jobs.owners.table import OWNER_KINDS, set_external
from api.objects.common import WireSelector, WireSelectorRequirement
from api.parsing.quantities import set_byte_resources
from api.reason_words import ReasonWords
from queues.store.access import StoreAccess
from queues.store.replication import Replication

# The name in kube-scheduler's client certificate, as kubeadm makes it.
KUBE_SCHEDULER = "system:kube-scheduler"
# Kinds that are queued through their pods, by their framework names in the configuration.
_SERVING = {
    "deployment": "Deployment",
    "leaderworkerset.x-k8s.io/leaderworkerset": "LeaderWorkerSet",
    "statefulset": "StatefulSet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a controller is started. Port 0 means any free port, -1 means off; the command sets the defaults.

    `redis_url` None starts an embedded Redis, whose data outlives the process only if `store_directory` is
    given. `store_access`, `store_replication` and `store_keys` are for the Redis at `redis_url`: without keys
    its values are not signed. `cluster_id` None is the uid of kube-system. `observe`: decide, log and
    measure, but write nothing. `failpoint`: see `runtime.failpoints`. `logs` are the settings of the logs,
    for child processes. `tls_certificate` and `tls_key` are PEM files: the TLS ports use them instead of a
    self-issued certificate, and the extender serves TLS with them. `client_ca` is a PEM file: the extender
    answers only clients with a certificate of this authority and one of `client_names`, and filters only pods
    of `scheduler_names`, all if there are none.
    `config` was read from `config_file`, which is read again for its section `extender`.
    `insecure`: /v1 and /metrics are plain and open to all on any address, and not on loopback alone.
    """

    kubeconfig: str | None = None
    namespace: str | None = None
    redis_url: str | None = None
    store_access: StoreAccess = field(default_factory=StoreAccess)
    store_replication: Replication = field(default_factory=Replication)
    store_keys: tuple[str, ...] = field(default=(), repr=False)
    cluster_id: str | None = None
    store_directory: str | None = None
    bind: str = "127.0.0.1"
    http_port: int = 8090
    metrics_port: int = 8080
    extender_port: int = 8888
    visibility_port: int = 8082
    webhook_port: int = 9443
    tls_certificate: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    client_names: tuple[str, ...] = (KUBE_SCHEDULER,)
    scheduler_names: tuple[str, ...] = ()
    insecure: bool = False
    observe: bool = False
    require_store: bool = False
    failpoint: str | None = None
    logs: LogSettings = field(default_factory=LogSettings)
    config: ControllerConfig = field(default_factory=ControllerConfig)
    config_file: str | None = None


def cluster_state_settings(config: ControllerConfig, *, namespace: str) -> ClusterStateSettings:
    """Return the settings for Jobs, pods and Workloads. `namespace` is the controller's own.

    This process knows from now on the kinds that the configuration describes, which resources are bytes, and
    whether annotations name groups and Workloads.
    """
    kueue = config.kueue
    set_reads_annotations(kueue.feature_gates.get("WorkloadIdentifierAnnotations", True))
    # Counters and capacities of devices are bytes, as in Kueue.
    set_byte_resources(one.resource for own in config.resources.devices.sources.values() for one in own)
    return ClusterStateSettings(
        with_pods="pod" in kueue.integrations.frameworks,
        with_pod_groups=config.berth.pod_groups,
        with_provisioning=config.berth.provisioning_requests,
        with_devices=config.resources.devices.is_on,
        gives_up_pods=kueue.feature_gates.get("FailureRecoveryPolicy", False),
        serving_kinds=frozenset(
            kind for name, kind in _SERVING.items() if name in kueue.integrations.frameworks
        ),
        owner_kinds=(
            *(row for row in OWNER_KINDS if row.framework in kueue.integrations.frameworks),
            *set_external(external_kinds(config.berth)),
        ),
        jobs=JobSettings(
            manages_without_queue_name=kueue.manage_jobs_without_queue_name,
            queues_plain_pods=config.queues_plain_pods,
            gates_off=frozenset(name for name, is_on in kueue.feature_gates.items() if not is_on),
            copied=_copied_keys(config),
            waits_for_pods=kueue.wait_for_pods_ready is not None,
            reclaims_pods=config.resources.counts_reclaimable,
            has_class_defaults=kueue.feature_gates.get("WorkloadPriorityClassDefaulting", False),
            has_slices=kueue.feature_gates.get("ElasticJobsViaWorkloadSlices", True),
            requeues_single_pods=not node_failure_settings(config).skips_pods,
            words=reason_words(config),
        ),
        lifecycle=LifecycleSettings(
            pods_ready=_pods_ready(config),
            retention=_retention(config),
            node_failures=node_failure_settings(config),
            words=reason_words(config),
        ),
        namespace_selector=_namespace_selector(config, namespace),
        pod_namespace_selector=_selector(kueue.integrations.pod_options.namespace_selector),
        pod_selector=_selector(kueue.integrations.pod_options.pod_selector),
    )


def reason_words(config: ControllerConfig) -> ReasonWords:
    """Return what conditions call the reasons for waiting: the fine words unless the gate is switched off."""
    gates = config.kueue.feature_gates
    is_fine = gates.get("UnadmittedWorkloadsObservability", True)
    is_explicit = is_fine and gates.get("UnadmittedWorkloadsExplicitStatus", False)
    return ReasonWords(is_fine=is_fine, is_explicit=is_explicit)


def _copied_keys(config: ControllerConfig) -> CopiedKeys:
    """Return what Workloads copy: the configured labels, and what their metrics are labelled with.

    The latter as in Kueue: the labels of metrics are read from the Workload, and users label their Jobs.
    """
    kueue = config.kueue
    custom = kueue.metrics.custom_labels if kueue.feature_gates.get("CustomMetricLabels") else []
    shown = [one for one in custom if one.source_kind == "Workload"]
    labels = [one.source_label_key or one.name for one in shown if not one.source_annotation_key]
    annotations = [one.source_annotation_key for one in shown if one.source_annotation_key]
    return CopiedKeys(
        labels=tuple(dict.fromkeys((*kueue.integrations.label_keys_to_copy, *labels))),
        annotations=tuple(dict.fromkeys(annotations)),
    )


def _pods_ready(config: ControllerConfig) -> PodsReadySettings | None:
    given = config.kueue.wait_for_pods_ready
    if given is None:
        return None
    strategy, recovery = given.requeuing_strategy, given.recovery_timeout_seconds
    return PodsReadySettings(
        timeout_seconds=given.timeout_seconds,
        # As in Kueue: without a recovery timeout a pod that was ready once gets the same time
        # as at the start.
        recovery_timeout_seconds=given.timeout_seconds if recovery is None else recovery,
        backoff_base_seconds=strategy.backoff_base_seconds,
        backoff_max_seconds=strategy.backoff_max_seconds,
        backoff_limit=strategy.backoff_limit_count,
    )


def _retention(config: ControllerConfig) -> RetentionSettings:
    given = config.kueue.object_retention_policies.workloads
    return RetentionSettings(
        after_finished_seconds=given.after_finished_seconds,
        after_deactivated_seconds=given.after_deactivated_seconds,
    )


def _selector(given: Selector | None) -> WireSelector:
    """Return the selector, or one that selects everything if none is given."""
    return WireSelector() if given is None else given.to_wire()


def _namespace_selector(config: ControllerConfig, namespace: str) -> WireSelector:
    """Return the given selector, or all but kube-system as in Kueue, and never our own namespace."""
    given = config.kueue.managed_jobs_namespace_selector
    excluded = ("kube-system", namespace) if given is None else (namespace,)
    others = WireSelectorRequirement(key="kubernetes.io/metadata.name", operator="NotIn", values=excluded)
    selector = _selector(given)
    return structs.replace(selector, match_expressions=(*(selector.match_expressions or ()), others))
