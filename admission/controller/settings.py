"""From the configuration file to what each part is told. Every setting is passed on here alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.engine.settings import node_failure_settings
from admission.reconcile.deadlines import PodsReadySettings, RetentionSettings
from admission.reconcile.job import JobSettings
from admission.reconcile.workload import LifecycleSettings
from api.config import ControllerConfig
from api.config.fields import Selector
from api.objects import WireSelector, WireSelectorRequirement

# Kinds that are queued through their pods, by their names in the configuration.
_SERVING = {
    "deployment": "Deployment",
    "leaderworkerset.x-k8s.io/leaderworkerset": "LeaderWorkerSet",
    "statefulset": "StatefulSet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a controller is started. Ports: 0 is any free one, -1 is off; their defaults are the command's.

    `redis_url` None uses an embedded Redis, whose data outlive the process where `store_directory` is given.
    `observe`: decide, log and measure, and write nothing. `failpoint`: see `failpoints`.
    `tls_certificate` and `tls_key`: PEM files for the TLS ports in place of a certificate of our own, and TLS
    for the extender.
    """

    kubeconfig: str | None = None
    namespace: str | None = None
    redis_url: str | None = None
    embedded_store: bool = False
    store_directory: str | None = None
    bind: str = "127.0.0.1"
    http_port: int = 8090
    metrics_port: int = 8080
    extender_port: int = 8888
    visibility_port: int = 8082
    webhook_port: int = 9443
    tls_certificate: str | None = None
    tls_key: str | None = None
    observe: bool = False
    require_store: bool = False
    failpoint: str | None = None
    config: ControllerConfig = field(default_factory=ControllerConfig)


def knowledge_settings(config: ControllerConfig, *, namespace: str) -> ClusterStateSettings:
    """Return what is known of Jobs and Workloads; `namespace` is the controller's own."""
    kueue = config.kueue
    return ClusterStateSettings(
        with_pods="pod" in kueue.integrations.frameworks,
        serving_kinds=frozenset(
            kind for name, kind in _SERVING.items() if name in kueue.integrations.frameworks
        ),
        jobs=JobSettings(
            manages_without_queue_name=kueue.manage_jobs_without_queue_name,
            label_keys_to_copy=tuple(kueue.integrations.label_keys_to_copy),
            waits_for_pods=kueue.wait_for_pods_ready is not None,
        ),
        lifecycle=LifecycleSettings(
            pods_ready=_pods_ready(config),
            retention=_retention(config),
            node_failures=node_failure_settings(config),
        ),
        namespace_selector=_namespace_selector(config, namespace),
        pod_namespace_selector=_selector(kueue.integrations.pod_options.namespace_selector),
        pod_selector=_selector(kueue.integrations.pod_options.pod_selector),
    )


def _pods_ready(config: ControllerConfig) -> PodsReadySettings | None:
    given = config.kueue.wait_for_pods_ready
    if given is None:
        return None
    strategy, recovery = given.requeuing_strategy, given.recovery_timeout_seconds
    return PodsReadySettings(
        timeout_seconds=given.timeout_seconds,
        # As Kueue: without a time of its own a pod that was ready once has as long as at the start.
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
    """Return the selector, one that selects everything where none is given."""
    return WireSelector() if given is None else given.to_wire()


def _namespace_selector(config: ControllerConfig, namespace: str) -> WireSelector:
    """Return the given selector, else Kueue's default: every namespace but kube-system and our own."""
    given = config.kueue.managed_jobs_namespace_selector
    if given is not None:
        return msgspec.convert(given.model_dump(by_alias=True, exclude_none=True), WireSelector)
    others = WireSelectorRequirement(
        key="kubernetes.io/metadata.name", operator="NotIn", values=("kube-system", namespace)
    )
    return WireSelector(match_expressions=(others,))
