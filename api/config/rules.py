"""Rules between fields of a configuration. Each function yields the violations of its rules.

Source: Kueue, pkg/config/validation.go; client-go, tools/leaderelection for the lease.
"""

from collections import Counter
from collections.abc import Iterator

from api.config.berth import Settings
from api.config.devices import device_class_errors
from api.config.external import KIND_RULE, KIND_VERSION_GROUP, external_errors
from api.config.fields import Selector
from api.config.kueue import Configuration, CustomLabel, LeaderElection, MultiKueue
from api.objects.common import WireSelector
from api.parsing.faults import ABSENT, FieldError
from api.selectors import matches_selector, selector_problem
from api.validation.names import duplicates

_INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"

POD_BASED = ("deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
"""Integrations whose Workloads consist of pods, so that they need the pod integration."""
# Limits of metrics.customLabels per kind of object, because each label multiplies the number of series.
_LABELS_PER_KIND = {"ClusterQueue": 6, "LocalQueue": 6, "Cohort": 6, "Workload": 2}
_TRACKED_VALUES = {"ClusterQueue": 16, "LocalQueue": 16, "Cohort": 16, "Workload": 12}


def configuration_errors(configuration: Configuration) -> Iterator[FieldError]:
    """Yield the violations of rules in Kueue's configuration."""
    yield from _leader_election(configuration.leader_election)
    yield from _custom_labels(configuration.metrics.custom_labels)
    yield from _tls(configuration)
    yield from _frameworks(configuration)
    yield from _managed_namespaces(configuration)
    yield from _multi_kueue(configuration.multi_kueue)
    yield from _preemption_strategies(configuration)
    yield from _transformations(configuration)
    yield from device_class_errors(configuration)
    yield from _local_queue_selector(configuration)


def settings_errors(settings: Settings) -> Iterator[FieldError]:
    """Yield the violations of rules in Berth's own settings."""
    lease = settings.lease
    # At least one renewal must be attempted before a leader gives up.
    if lease.deadline_seconds <= lease.renew_seconds:
        yield FieldError(
            path="lease.deadlineSeconds",
            value=lease.deadline_seconds,
            rule=f"must be more than renewSeconds ({lease.renew_seconds:g})",
        )
    # A leader must have stopped before another replica may start to lead.
    if lease.duration_seconds <= lease.deadline_seconds:
        yield FieldError(
            path="lease.durationSeconds",
            value=lease.duration_seconds,
            rule=f"must be more than deadlineSeconds ({lease.deadline_seconds:g})",
        )
    yield from external_errors(settings)


def _leader_election(election: LeaderElection) -> Iterator[FieldError]:
    renew, deadline, duration = election.renew_seconds, election.deadline_seconds, election.lease_seconds
    if duration <= deadline:
        yield FieldError(
            path="leaderElection.leaseDuration",
            value=f"{duration:g}s",
            rule=f"must be more than renewDeadline ({deadline:g}s)",
        )
    if deadline <= renew:
        yield FieldError(
            path="leaderElection.renewDeadline",
            value=f"{deadline:g}s",
            rule=f"must be more than retryPeriod ({renew:g}s)",
        )
    if renew <= 0:
        yield FieldError(path="leaderElection.retryPeriod", value=f"{renew:g}s", rule="must be more than 0s")


def _custom_labels(labels: list[CustomLabel]) -> Iterator[FieldError]:
    # A series cannot have two labels of the same name.
    for name in duplicates(label.name for label in labels):
        yield FieldError(path="metrics.customLabels", value=name, rule="names must be unique")
    for kind, count in Counter(label.source_kind for label in labels).items():
        if count > _LABELS_PER_KIND[kind]:
            rule = f"at most {_LABELS_PER_KIND[kind]} may have sourceKind {kind}"
            yield FieldError(path="metrics.customLabels", value=count, rule=rule)
    for index, label in enumerate(labels):
        yield from _custom_label(f"metrics.customLabels[{index}]", label)


def _custom_label(path: str, label: CustomLabel) -> Iterator[FieldError]:
    if label.source_label_key and label.source_annotation_key:
        yield FieldError(
            path=f"{path}.sourceAnnotationKey",
            value=label.source_annotation_key,
            rule="sourceLabelKey and sourceAnnotationKey exclude each other",
        )
    values, most = label.tracked_values, _TRACKED_VALUES[label.source_kind]
    # Otherwise every Workload could add a series, without limit.
    if label.source_kind == "Workload" and not values:
        yield FieldError(
            path=f"{path}.trackedValues", value=ABSENT, rule="a label of Workloads needs tracked values"
        )
    if values and len(values) > most:
        yield FieldError(
            path=f"{path}.trackedValues",
            value=len(values),
            rule=f"must have at most {most} entries for sourceKind {label.source_kind}",
        )


def _tls(configuration: Configuration) -> Iterator[FieldError]:
    tls = configuration.tls
    # Reported instead of ignored: TLS 1.3 would not enforce the restriction that the user expects.
    if tls.cipher_suites and tls.min_version == "VersionTLS13":
        yield FieldError(
            path="tls.cipherSuites", value=tls.cipher_suites, rule="TLS 1.3 has no choice of cipher suites"
        )


def _frameworks(configuration: Configuration) -> Iterator[FieldError]:
    integrations = configuration.integrations
    frameworks = integrations.frameworks
    for name in duplicates(frameworks):
        yield FieldError(path="integrations.frameworks", value=name, rule="must be listed once")
    options = integrations.pod_options
    for name, selector in (
        ("namespaceSelector", options.namespace_selector),
        ("podSelector", options.pod_selector),
    ):
        if selector is not None:
            yield from _selector(f"integrations.podOptions.{name}", selector.to_wire())
    yield from _external("integrations.externalFrameworks", integrations.external_frameworks)


def _external(path: str, kinds: list[str]) -> Iterator[FieldError]:
    for index, kind in enumerate(kinds):
        if KIND_VERSION_GROUP.fullmatch(kind) is None:
            yield FieldError(path=f"{path}[{index}]", value=kind, rule=KIND_RULE)
    for kind in duplicates(kinds):
        yield FieldError(path=path, value=kind, rule="must be listed once")


def _managed_namespaces(configuration: Configuration) -> Iterator[FieldError]:
    """Yield a fault if the selector includes system pods, or those of the namespace that the file names.

    These must never wait for a queue that depends on them. The file of a Kueue installation excludes Kueue's
    namespace, and cannot know Berth's own, which is never managed whatever the selector is.
    """
    path, selector = "managedJobsNamespaceSelector", configuration.managed_jobs_namespace_selector
    if selector is None:
        return
    wire = selector.to_wire()
    yield from _selector(path, wire)
    # Only pods are protected: Jobs of the system may wait, because no controller runs as a Job.
    if "pod" not in configuration.integrations.frameworks:
        return
    for protected in ("kube-system", configuration.namespace):
        if protected and matches_selector(wire, {"kubernetes.io/metadata.name": protected}):
            rule = f"must not match the namespace {protected} while integrations.frameworks has pod"
            yield FieldError(path=path, value=_written(selector), rule=rule)


def _local_queue_selector(configuration: Configuration) -> Iterator[FieldError]:
    selector = configuration.metrics.local_queue_metrics.local_queue_selector
    if selector is not None:
        yield from _selector("metrics.localQueueMetrics.localQueueSelector", selector.to_wire())


def _selector(path: str, selector: WireSelector) -> Iterator[FieldError]:
    problem = selector_problem(selector)
    if problem is not None:
        yield FieldError(
            path=path, value=[r.operator for r in selector.match_expressions or ()], rule=problem
        )


def _written(selector: Selector) -> object:
    return selector.model_dump(by_alias=True, exclude_unset=True)


def _multi_kueue(multi_kueue: MultiKueue) -> Iterator[FieldError]:
    yield from _external("multiKueue.externalFrameworks", [f.name for f in multi_kueue.external_frameworks])
    config = multi_kueue.incremental_dispatcher_config
    if config is not None and multi_kueue.dispatcher_name != _INCREMENTAL:
        yield FieldError(
            path="multiKueue.incrementalDispatcherConfig",
            value={"stepSize": config.step_size},
            rule=f"needs multiKueue.dispatcherName {_INCREMENTAL}",
        )


def _preemption_strategies(configuration: Configuration) -> Iterator[FieldError]:
    sharing = configuration.fair_sharing
    orders = (
        ["LessThanOrEqualToFinalShare"],
        ["LessThanInitialShare"],
        ["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
    )
    # Kueue accepts only these three, and not the two strategies in the other order.
    if sharing is not None and sharing.preemption_strategies not in orders:
        yield FieldError(
            path="fairSharing.preemptionStrategies",
            value=sharing.preemption_strategies,
            rule="must be LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order",
        )


def _transformations(configuration: Configuration) -> Iterator[FieldError]:
    resources = configuration.resources
    # It is undefined which of two transformations of the same input would apply.
    for name in duplicates(transformation.input for transformation in resources.transformations):
        yield FieldError(
            path="resources.transformations", value=name, rule="must be the input of only one transformation"
        )
