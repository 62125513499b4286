"""Parsing of a configuration file into a ControllerConfig, or into sentences about all of its faults."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from api.config.berth import Settings
from api.config.devices import device_settings
from api.config.fields import Section, set_paths, unknown_fields
from api.config.gates import gate_notice
from api.config.kueue import Configuration
from api.config.older import upgrade
from api.config.rules import POD_BASED, configuration_errors, settings_errors
from api.config.topology import KINDS as TOPOLOGY_KINDS
from api.config.topology import VERSION as TOPOLOGY_VERSION
from api.config.topology import SchedulerConfig
from api.jobs.resource_requests import (
    QuotaCheckStrategy,
    ResourceSettings,
    Transformation,
    TransformationStrategy,
)
from api.keys import BERTH_VERSION
from api.parsing.faults import validation_errors
from api.parsing.quantities import parse
from api.policy import AdmissionPolicy

_KUEUE_VERSIONS = ("config.kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta2")
_EXPECTED = (
    "expected Configuration of config.kueue.x-k8s.io/v1beta1 or v1beta2,"
    f" or ControllerConfig of {BERTH_VERSION}, or SchedulerConfig of {TOPOLOGY_VERSION}"
)

ACTED_UPON = frozenset(
    {
        "admissionFairSharing",
        "fairSharing",
        "featureGates.DisableWaitForPodsReady",
        "featureGates.ElasticJobsViaWorkloadSlices",
        "featureGates.FailureRecoveryPolicy",
        "featureGates.KueueDRAIntegration",
        "featureGates.KueueDRAIntegrationConsumableCapacity",
        "featureGates.KueueDRAIntegrationExtendedResource",
        "featureGates.KueueDRAIntegrationPartitionableDevices",
        "featureGates.KueueDRARejectWorkloadsWhenDRADisabled",
        "featureGates.LWSImmutableGroupSize",
        "featureGates.MultiKueueOrchestratedPreemption",
        "featureGates.PriorityBoost",
        "featureGates.ReclaimablePods",
        "featureGates.SkipReassignmentForPodOwnedWorkloads",
        "featureGates.TASBalancedPlacement",
        "featureGates.TASFailedNodeReplacement",
        "featureGates.TASFailedNodeReplacementFailFast",
        "featureGates.TASProfileMixed",
        "featureGates.TASReplaceNodeDueToNotReadyOverFixedTime",
        "featureGates.TASReplaceNodeOnNodeTaints",
        "featureGates.TASReplaceNodeOnPodTermination",
        "featureGates.TASRespectNodeAffinityPreferred",
        "featureGates.UnadmittedWorkloadsExplicitStatus",
        "featureGates.UnadmittedWorkloadsObservability",
        "featureGates.ValidateRayAndSparkJobUpdates",
        "featureGates.WorkloadIdentifierAnnotations",
        "featureGates.WorkloadPriorityClassDefaulting",
        "integrations.externalFrameworks",
        "integrations.frameworks",
        "integrations.labelKeysToCopy",
        "integrations.podOptions",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
        "leaderElection.retryPeriod",
        "manageJobsWithoutQueueName",
        "managedJobsNamespaceSelector",
        "featureGates.CustomMetricLabels",
        "featureGates.QuotaCheckStrategy",
        "metrics.customLabels",
        "metrics.enableClusterQueueResources",
        "metrics.localQueueMetrics.enable",
        "metrics.localQueueMetrics.localQueueSelector",
        "namespace",
        "objectRetentionPolicies",
        "resources.deviceClassMappings",
        "resources.excludeResourcePrefixes",
        "resources.quotaCheckStrategy",
        "resources.transformations",
        "waitForPodsReady.blockAdmission",
        "waitForPodsReady.recoveryTimeout",
        "waitForPodsReady.requeuingStrategy",
        "waitForPodsReady.timeout",
    }
)
"""Fields of Kueue's configuration that have an effect in Berth. Every newly supported field
must be added here."""

_GATES = frozenset(
    path.removeprefix("featureGates.") for path in ACTED_UPON if path.startswith("featureGates.")
)


# Whole sections are listed by their name, which includes all fields below them.
def _is_acted_upon(path: str) -> bool:
    return any(path == known or path.startswith(f"{known}.") for known in ACTED_UPON)


class ConfigError(ValueError):
    """A configuration is invalid; each of `sentences` names the file, field, value and rule."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__("\n".join(self.sentences))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """The three durations of leader election, in seconds."""

    duration_seconds: float
    renew_seconds: float
    deadline_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """A valid configuration. `warnings` are sentences about unknown fields, which have no effect.

    `topology` is the topology scheduler's document, None if the file has none. `queues_plain_pods`: whether
    pods are queued that do not serve for a Deployment or the like; False if only such a kind is listed.
    """

    kueue: Configuration = field(default_factory=Configuration)
    berth: Settings = field(default_factory=Settings)
    topology: SchedulerConfig | None = None
    queues_plain_pods: bool = True
    source: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def default_policy(self) -> AdmissionPolicy | None:
        """The policy of ClusterQueues that no AdmissionPolicy selects; None means Kueue's decisions."""
        return self.topology.to_policy() if self.topology is not None else None

    @property
    def lease(self) -> LeaseTimes:
        """The durations of leader election: Berth's if they are set, else Kueue's, else the defaults.

        Kueue's three are used together, because durations from two sources need not be consistent.
        """
        ours, theirs = self.berth.lease, self.kueue.leader_election
        # Compares which fields are set, not their values: writing a default is a choice too.
        is_kueues = not ours.model_fields_set and bool(
            theirs.model_fields_set & {"lease_seconds", "renew_seconds", "deadline_seconds"}
        )
        if is_kueues:
            return LeaseTimes(
                duration_seconds=theirs.lease_seconds,
                renew_seconds=theirs.renew_seconds,
                deadline_seconds=theirs.deadline_seconds,
            )
        return LeaseTimes(
            duration_seconds=ours.duration_seconds,
            renew_seconds=ours.renew_seconds,
            deadline_seconds=ours.deadline_seconds,
        )

    @property
    def resources(self) -> ResourceSettings:
        """The settings for counting requests, in the form that `api.jobs.resource_requests` uses."""
        resources, gates = self.kueue.resources, self.kueue.feature_gates
        blocks = not gates.get("QuotaCheckStrategy", True)
        strategy = QuotaCheckStrategy(resources.quota_check_strategy)
        return ResourceSettings(
            exclude_prefixes=tuple(resources.exclude_resource_prefixes),
            transformations=tuple(
                Transformation(
                    input=each.input,
                    strategy=TransformationStrategy(each.strategy),
                    outputs={name: parse(text) for name, text in each.outputs.items()},
                    # An empty string in YAML means the same as an absent field.
                    multiply_by=each.multiply_by or None,
                )
                for each in resources.transformations
            ),
            # Without the gate the field is read and has no effect, as in Kueue.
            quota_check=QuotaCheckStrategy.BLOCK_UNDECLARED if blocks else strategy,
            counts_reclaimable=gates.get("ReclaimablePods", True),
            devices=device_settings(self.kueue),
        )

    def unused(self) -> tuple[str, ...]:
        """Return one sentence for each field of Kueue's that is set but has no effect in Berth."""
        # Feature gates are listed individually, because some have an effect and others do not.
        written = [path for path in set_paths(self.kueue) if path != "featureGates"]
        fields = [path for path in written if not _is_acted_upon(path)]
        return (
            *self._waiting_for_gates(),
            *(f"{self.source}: {path} is read and has no effect in Berth" for path in fields),
            *self._fixed_gates(),
            *self._unlisted_frameworks(),
            *self._external_frameworks(),
        )

    def _fixed_gates(self) -> Iterator[str]:
        for name, value in self.kueue.feature_gates.items():
            notice = gate_notice(name, value=value, acted_upon=_GATES)
            if notice:
                yield f"{self.source}: featureGates.{name} {notice}"

    def _unlisted_frameworks(self) -> Iterator[str]:
        # Kueue does not manage Jobs if batch/job is missing from the list.
        if "batch/job" not in self.kueue.integrations.frameworks:
            yield f"{self.source}: integrations.frameworks: Berth manages batch/job although it is not listed"

    def _external_frameworks(self) -> Iterator[str]:
        # In Kueue, a reference to an owner of such a kind exempts any Job from quota.
        described = {one.kind for one in self.berth.integrations.external}
        for name in self.kueue.integrations.external_frameworks:
            if name not in described:
                yield (
                    f"{self.source}: integrations.externalFrameworks: {name}: Workloads of another controller"
                    " are admitted; a Job or pod in a queue that it owns has a Workload of its own"
                )

    def _waiting_for_gates(self) -> Iterator[str]:
        gate = "CustomMetricLabels"
        # In Kueue this field needs a feature gate; without this message, the labels
        # would be missing silently.
        if self.kueue.metrics.custom_labels and not self.kueue.feature_gates.get(gate):
            yield f"{self.source}: metrics.customLabels has no effect unless featureGates.{gate} is true"


def load_config(text: str, *, source: str) -> ControllerConfig:
    """Return the configuration in the YAML `text`.

    `source` is the file name used in messages. Unknown fields only give warnings, because a newer Kueue may
    define them. Raises ConfigError with all faults at once.
    """
    documents = _documents(text, source)
    faults: list[str] = []
    warnings: list[str] = []
    kueue, berth = Configuration(), Settings()
    topology: SchedulerConfig | None = None
    for document in documents:
        if document["kind"] == "Configuration":
            body, notes = upgrade(document)
            warnings += [f"{source}: {note}" for note in notes]
            # If a document is invalid, the defaults are used for now, so that the others are still checked.
            kueue = _section(Configuration, body, source, faults) or kueue
        elif document["kind"] in TOPOLOGY_KINDS:
            topology = _section(SchedulerConfig, document, source, faults)
        else:
            berth = _section(Settings, document, source, faults) or berth
    # Rules between fields need fields that are valid by themselves.
    if not faults:
        found = [
            *configuration_errors(kueue),
            *settings_errors(berth),
        ]
        faults = [f"{source}: {fault}" for fault in found]
    if faults:
        raise ConfigError(faults)
    # Only for a valid file: in an invalid one, an unknown field is usually the fault itself.
    for section in (kueue, berth, *((topology,) if topology is not None else ())):
        warnings += _unknown(section, source)
    with_pods = _with_pods(kueue)
    return ControllerConfig(
        kueue=with_pods,
        berth=berth,
        topology=topology,
        queues_plain_pods=with_pods is kueue,
        source=source,
        warnings=tuple(warnings),
    )


def _with_pods(kueue: Configuration) -> Configuration:
    """Return the configuration with the integration of pods, if it lists one whose Workloads consist of pods.

    Source: Kueue, pkg/controller/jobframework (implicitly enabled integrations).
    """
    listed = kueue.integrations.frameworks
    if "pod" in listed or not set(listed) & set(POD_BASED):
        return kueue
    integrations = kueue.integrations.model_copy(update={"frameworks": [*listed, "pod"]})
    return kueue.model_copy(update={"integrations": integrations})


def _documents(text: str, source: str) -> list[dict[str, Any]]:
    try:
        # A trailing `---` leaves an empty document behind.
        loaded = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ConfigError([f"{source}: {_yaml_fault(error)}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{source} is nested too deep"]) from error
    faults = list(_document_faults(loaded, source))
    if faults:
        raise ConfigError(faults)
    return [_without_nulls(document) for document in loaded]


def _yaml_fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        # The parser counts from 0, editors from 1.
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1} is not YAML: {error.problem}"
    return f"not YAML: {error}"


def _document_faults(documents: list[Any], source: str) -> Iterator[str]:
    seen = set()
    for number, document in enumerate(documents, start=1):
        place = f"{source}: document {number}"
        if not isinstance(document, dict):
            yield f"{place} is not a mapping; {_EXPECTED}"
            continue
        version, kind = str(document.get("apiVersion")), str(document.get("kind"))
        if not _is_expected(version, kind):
            yield f"{place} is {kind} of {version}; {_EXPECTED}"
        # There is no defined order in which two documents of a kind could be merged.
        if kind in seen:
            yield f"{place} is a second {kind}; one is expected"
        seen.add(kind)


def _is_expected(version: object, kind: object) -> bool:
    if kind == "Configuration":
        return version in _KUEUE_VERSIONS
    if kind in TOPOLOGY_KINDS:
        return version == TOPOLOGY_VERSION
    return (version, kind) == (BERTH_VERSION, "ControllerConfig")


def _without_nulls(value: Any) -> Any:
    """Return `value` without null fields, which mean the same as absent ones."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


_S = TypeVar("_S", bound=Section)


def _section(model: type[_S], document: Mapping[str, Any], source: str, faults: list[str]) -> _S | None:
    """Return the document as a model; its faults are added to `faults` as sentences."""
    body = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        return model.model_validate(body)
    except ValidationError as error:
        faults += [f"{source}: {fault}" for fault in validation_errors(error)]
        return None


def _unknown(section: Section, source: str) -> Iterator[str]:
    for path, name, known in unknown_fields(section):
        # Only fields of the same section are suggested: a field elsewhere would be wrong advice.
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        yield f"{source}: {f'{path}.' if path else ''}{name} is not known{advice}"
