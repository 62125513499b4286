"""Kueue's configuration file and Berth's settings: parsing, validation, and fields without effect."""

from __future__ import annotations

import json
import textwrap
from fractions import Fraction
from typing import Any

import pytest
import yaml

from api.config.gates import FIXED
from api.config.kueue import Configuration, WaitForPodsReady
from api.config.loading import ConfigError, ControllerConfig, LeaseTimes, load_config
from api.jobs.resource_requests import QuotaCheckStrategy, Transformation, TransformationStrategy
from api.policy import Aliases, DomainRules, PlacementRules, ScoringWeights

KUEUE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
BERTH = "apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\n"


def load(text: str) -> ControllerConfig:
    return load_config(text, source="f.yaml")


def kueue(body: str, *, version: str = KUEUE) -> Configuration:
    return load(version + textwrap.dedent(body)).kueue


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(text)
    return list(refused.value.sentences)


FULL: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": "queues",
    "webhook": {"port": 9444, "host": "::", "certDir": "/certs"},
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "20s",
        "renewDeadline": "12s",
        "retryPeriod": "3s",
        "resourceName": "c1f6bfd2.kueue.x-k8s.io",
        "resourceNamespace": "queues",
        "resourceLock": "leases",
    },
    "metrics": {
        "bindAddress": ":8443",
        "enableClusterQueueResources": True,
        "customLabels": [
            {
                "name": "team",
                "sourceLabelKey": "example.com/team",
                "sourceKind": "Workload",
                "trackedValues": ["a"],
            },
            {"name": "site", "sourceAnnotationKey": "example.com/site"},
        ],
        "localQueueMetrics": {"enable": True, "localQueueSelector": {"matchLabels": {"a": "b"}}},
    },
    "health": {
        "healthProbeBindAddress": ":8081",
        "readinessEndpointName": "readyz",
        "livenessEndpointName": "healthz",
    },
    "pprofBindAddress": ":8083",
    "controller": {"groupKindConcurrency": {"Job.batch": 5}, "cacheSyncTimeout": 120000000000},
    "tls": {
        "minVersion": "VersionTLS12",
        "cipherSuites": ["TLS_AES_128_GCM_SHA256"],
        "curvePreferences": ["X25519"],
    },
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "queues"]}
        ]
    },
    "internalCertManagement": {"enable": True, "webhookServiceName": "s", "webhookSecretName": "c"},
    "waitForPodsReady": {
        "timeout": "5m",
        "blockAdmission": True,
        "recoveryTimeout": "3m",
        "requeuingStrategy": {
            "timestamp": "Creation",
            "backoffLimitCount": 5,
            "backoffBaseSeconds": 30,
            "backoffMaxSeconds": 600,
        },
    },
    "clientConnection": {"qps": 50, "burst": 100},
    "integrations": {
        "frameworks": ["batch/job", "pod", "deployment", "jobset.x-k8s.io/jobset"],
        "externalFrameworks": ["MyJob.v1.example.com"],
        "labelKeysToCopy": ["team"],
    },
    "multiKueue": {
        "gcInterval": "2m",
        "origin": "here",
        "workerLostTimeout": "20m",
        "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
        "externalFrameworks": [{"name": "TheirJob.v1.example.com"}],
        "clusterProfile": {"accessProviders": [{"name": "p", "execConfig": {"command": "get-token"}}]},
        "incrementalDispatcherConfig": {"stepSize": 2},
    },
    "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    "admissionFairSharing": {
        "usageHalfLifeTime": "168h",
        "usageSamplingInterval": "5m",
        "resourceWeights": {"cpu": 2, "memory": 0.5},
    },
    "resources": {
        "quotaCheckStrategy": "IgnoreUndeclared",
        "excludeResourcePrefixes": ["example.com/"],
        "transformations": [
            {
                "input": "nvidia.com/mig-1g.5gb",
                "strategy": "Replace",
                "multiplyBy": "cpu",
                "outputs": {"example.com/credits": "10"},
            }
        ],
        "deviceClassMappings": [
            {
                "name": "gpus",
                "deviceClassNames": ["gpu.nvidia.com"],
                "sources": [
                    {
                        "counter": {
                            "name": "memory",
                            "driver": "gpu.nvidia.com",
                            "deviceSelector": {"cel": {"expression": "true"}},
                        }
                    }
                ],
            }
        ],
    },
    "featureGates": {"PartialAdmission": True},
    "objectRetentionPolicies": {"workloads": {"afterFinished": "1h", "afterDeactivatedByKueue": "0s"}},
    "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": 8082},
}


def test_without_its_gate_the_strategy_of_quota_checks_has_no_effect() -> None:
    config = load(yaml.safe_dump({**FULL, "featureGates": {"QuotaCheckStrategy": False}}))

    assert config.resources.quota_check is QuotaCheckStrategy.BLOCK_UNDECLARED


def test_every_documented_field_of_kueues_file_is_read() -> None:
    config = load(yaml.safe_dump(FULL))

    assert config.warnings == ()
    assert config.kueue.namespace == "queues"
    assert config.kueue.admission_fair_sharing is not None
    assert config.kueue.admission_fair_sharing.usage_half_life_seconds == 604800.0
    assert config.kueue.wait_for_pods_ready is not None
    assert config.kueue.wait_for_pods_ready.requeuing_strategy.backoff_limit_count == 5
    assert config.kueue.object_retention_policies.workloads.after_deactivated_seconds == 0.0
    assert config.resources.quota_check is QuotaCheckStrategy.IGNORE_UNDECLARED
    assert config.resources.exclude_prefixes == ("example.com/",)
    assert config.resources.counts_reclaimable
    assert config.resources.transformations == (
        Transformation(
            input="nvidia.com/mig-1g.5gb",
            strategy=TransformationStrategy.REPLACE,
            outputs={"example.com/credits": Fraction(10)},
            multiply_by="cpu",
        ),
    )


def external(**fields: Any) -> str:
    """Return a setting that describes another kind."""
    row = {
        "kind": "Train.v1.example.com",
        "podSets": [{"name": "main", "template": ".spec.pods"}],
        **fields,
    }
    return f"integrations: {json.dumps({'external': [row]})}"


def test_kinds_that_another_controller_queues_are_named_with_what_holds() -> None:
    kinds = (
        "integrations: {frameworks: [batch/job], externalFrameworks: [Train.v1.example.com, Other.v1.x.org]}"
    )

    (sentence,) = load(f"{KUEUE}{kinds}\n---\n{BERTH}{external()}").unused()

    assert sentence.startswith(
        "f.yaml: integrations.externalFrameworks: Other.v1.x.org: Workloads of another"
    )


def test_without_a_file_the_defaults_are_kueues_and_berths_own() -> None:
    config = ControllerConfig()

    assert load_config("", source="") == config
    assert config.kueue.integrations.frameworks == ["batch/job"]
    assert config.kueue.wait_for_pods_ready == WaitForPodsReady()
    assert config.kueue.fair_sharing is None
    assert config.berth.shard == "default"
    assert config.berth.execution.max_in_flight == 128
    assert config.lease == LeaseTimes(duration_seconds=15.0, renew_seconds=2.0, deadline_seconds=10.0)
    assert config.unused() == ()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(KUEUE, (15.0, 2.0, 10.0), id="the defaults of both, when nothing is set"),
        pytest.param(
            KUEUE + "leaderElection: {leaseDuration: 30s}",
            (30.0, 2.0, 10.0),
            id="Kueue's, when one is written",
        ),
        pytest.param(
            KUEUE + "leaderElection: {leaderElect: true}\n---\n" + BERTH + "lease: {renewSeconds: 1}",
            (15.0, 1.0, 10.0),
            id="Berth's, when Kueue's switch is written alone",
        ),
        pytest.param(
            KUEUE + "leaderElection: {leaseDuration: 30s}\n---\n" + BERTH + "lease: {durationSeconds: 16}",
            (16.0, 2.0, 10.0),
            id="Berth's, when both are written",
        ),
    ],
)
def test_the_times_of_the_lease_are(text: str, want: tuple[float, float, float]) -> None:
    lease = load(text).lease

    assert (lease.duration_seconds, lease.renew_seconds, lease.deadline_seconds) == want


def test_both_documents_are_read_in_either_order() -> None:
    first = load(KUEUE + "namespace: a\n---\n" + BERTH + "shard: gold\n")
    second = load(BERTH + "shard: gold\n---\n---\n" + KUEUE + "namespace: a\n")

    assert first == second
    assert (first.kueue.namespace, first.berth.shard) == ("a", "gold")


def test_null_is_as_good_as_absent() -> None:
    assert kueue("webhook:\nfairSharing: null\n") == Configuration()


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("", None, id="absent is off"),
        pytest.param("waitForPodsReady: {enable: false, timeout: 1m}", None, id="disabled is off"),
        pytest.param(
            "waitForPodsReady: {enable: true, timeout: 1m}", (60.0, True), id="enabled blocks by default"
        ),
        pytest.param(
            "waitForPodsReady: {enable: true, blockAdmission: false}",
            (1800.0, False),
            id="enabled and set not to block",
        ),
    ],
)
def test_wait_for_pods_ready_of_v1beta1(body: str, want: tuple[float, bool] | None) -> None:
    section = kueue(body, version=OLD).wait_for_pods_ready

    assert (section and (section.timeout_seconds, section.block_admission)) == want


def test_the_gate_switches_wait_for_pods_ready_off() -> None:
    assert kueue("featureGates: {DisableWaitForPodsReady: true}").wait_for_pods_ready is None


@pytest.mark.parametrize(
    ("version", "body", "want"),
    [
        pytest.param(OLD, "fairSharing: {enable: false}", None, id="disabled in v1beta1 is off"),
        pytest.param(
            OLD,
            "fairSharing: {enable: true, preemptionStrategies: []}",
            ["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
            id="enabled in v1beta1 without strategies has both",
        ),
        pytest.param(
            OLD,
            "fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}",
            ["LessThanInitialShare"],
            id="enabled in v1beta1 with one has that",
        ),
        pytest.param(KUEUE, "", None, id="absent in v1beta2 is off"),
        pytest.param(
            KUEUE,
            "fairSharing: {}",
            ["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
            id="empty in v1beta2 has both strategies",
        ),
    ],
)
def test_fair_sharing(version: str, body: str, want: list[str] | None) -> None:
    sharing = kueue(body, version=version).fair_sharing

    assert (sharing.preemption_strategies if sharing else None) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            KUEUE + "waitForPodReady: {}",
            "f.yaml: waitForPodReady is not known; did you mean waitForPodsReady?",
            id="a misspelt section",
        ),
        pytest.param(
            KUEUE + "clientConnection: {qsp: 5}",
            "f.yaml: clientConnection.qsp is not known; did you mean qps?",
            id="a misspelt field",
        ),
        pytest.param(
            KUEUE + "resources: {transformations: [{input: a, multiply: b}]}",
            "f.yaml: resources.transformations[0].multiply is not known; did you mean multiplyBy?",
            id="a misspelt field in a list",
        ),
        pytest.param(
            KUEUE + "frobnicate: 1",
            "f.yaml: frobnicate is not known",
            id="a field like no other has no advice",
        ),
        pytest.param(
            BERTH + "leese: {}", "f.yaml: leese is not known; did you mean lease?", id="in Berth's document"
        ),
        pytest.param(
            OLD + "queueVisibility: {}",
            "f.yaml: queueVisibility was removed in v1beta2; positions are served by the visibility API",
            id="a section that is gone",
        ),
    ],
)
def test_an_unknown_field_is_a_warning(text: str, want: str) -> None:
    assert load(text).warnings == (want,)


@pytest.mark.parametrize("gate", sorted(FIXED))
def test_a_gate_is_named_only_where_a_file_sets_it_to_what_does_not_hold(gate: str) -> None:
    fixed = FIXED[gate]

    said = [
        load(KUEUE + f"featureGates: {{{gate}: {str(value).lower()}}}").unused() for value in (True, False)
    ]

    named = f"f.yaml: featureGates.{gate} is read and has no effect in Berth: {fixed.follows}"
    assert said == ([(), (named,)] if fixed.value else [(named,), ()])


def test_what_has_no_effect_is_said_field_by_field() -> None:
    body = """
        namespace: queues
        clientConnection: {qps: 50}
        featureGates:
          PriorityBoost: true
          PartialAdmission: false
          AdmissionGatedBy: true
          VisibilityOnDemand: false
          FlavorFungibilty: true
          New: true
          ShortWorkloadNames: true
          TASCacheTopologyTree: true
        managedJobsNamespaceSelector: {matchLabels: {a: b}}
        """
    assert load(KUEUE + textwrap.dedent(body)).unused() == (
        "f.yaml: clientConnection.qps is read and has no effect in Berth",
        "f.yaml: featureGates.PartialAdmission is read and has no effect in Berth:"
        " a Job with job-min-parallelism may start with fewer pods",
        "f.yaml: featureGates.VisibilityOnDemand is read and has no effect in Berth:"
        " the flag --visibility-port decides",
        "f.yaml: featureGates.FlavorFungibilty is read and has no effect in Berth,"
        " and Kueue v0.19 has no such gate; did you mean FlavorFungibility?",
        "f.yaml: featureGates.New is read and has no effect in Berth, and Kueue v0.19 has no such gate",
        "f.yaml: featureGates.ShortWorkloadNames is read and has no effect in Berth",
    )


@pytest.mark.parametrize(
    ("listed", "want", "plain"),
    [
        pytest.param("batch/job", ["batch/job"], True, id="no kind made of pods"),
        pytest.param("pod, deployment", ["pod", "deployment"], True, id="pods beside such a kind"),
        pytest.param("deployment", ["deployment", "pod"], False, id="such a kind alone brings its own pods"),
    ],
)
def test_kinds_made_of_pods_need_no_integration_of_pods(listed: str, want: list[str], plain: bool) -> None:
    config = load(KUEUE + f"integrations: {{frameworks: [{listed}]}}")

    assert (config.kueue.integrations.frameworks, config.queues_plain_pods) == (want, plain)


def test_jobs_are_managed_and_reported_even_if_the_frameworks_do_not_list_them() -> None:
    assert load(KUEUE + "integrations: {frameworks: [pod]}").unused() == (
        "f.yaml: integrations.frameworks: Berth manages batch/job although it is not listed",
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            KUEUE + "waitForPodsReady: {timeout: 5 minutes}",
            'f.yaml: waitForPodsReady.timeout is "5 minutes": must be a duration such as 30s, 5m or 1h30m',
            id="a duration in words",
        ),
        pytest.param(
            KUEUE + "waitForPodsReady: {timeout: 300}",
            "f.yaml: waitForPodsReady.timeout is 300: must be a duration such as 30s, 5m or 1h30m",
            id="a duration without unit",
        ),
        pytest.param(
            KUEUE + "waitForPodsReady: {timeout: -5m}",
            'f.yaml: waitForPodsReady.timeout is "-5m": must be at least 0',
            id="a negative duration",
        ),
        pytest.param(
            KUEUE + "webhook: {port: '9443'}",
            'f.yaml: webhook.port is "9443": must be a whole number',
            id="a number as text",
        ),
        pytest.param(
            KUEUE + "webhook: {port: 70000}",
            "f.yaml: webhook.port is 70000: must be at most 65535",
            id="a port beyond the last",
        ),
        pytest.param(
            KUEUE + "webhook: 9443",
            "f.yaml: webhook is 9443: must be an object with named fields",
            id="a value in place of a section",
        ),
        pytest.param(
            KUEUE + "manageJobsWithoutQueueName: 'yes'",
            'f.yaml: manageJobsWithoutQueueName is "yes": must be true or false',
            id="a word for a switch",
        ),
        pytest.param(
            KUEUE + "integrations: {frameworks: [jobset]}",
            'f.yaml: integrations.frameworks[0] is "jobset": must be',
            id="a kind that is none",
        ),
        pytest.param(
            KUEUE + "integrations: {externalFrameworks: [MyJob]}",
            'f.yaml: integrations.externalFrameworks[0] is "MyJob": must be Kind.version.group,'
            " such as MyJob.v1.example.com",
            id="a kind without group",
        ),
        pytest.param(
            KUEUE
            + "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            'f.yaml: fairSharing.preemptionStrategies is ["LessThanInitialShare",'
            ' "LessThanOrEqualToFinalShare"]: must be LessThanOrEqualToFinalShare, LessThanInitialShare,'
            " or both in this order",
            id="strategies in the wrong order",
        ),
        pytest.param(
            KUEUE + "resources: {transformations: [{input: a}, {input: a}]}",
            'f.yaml: resources.transformations is "a": must be the input of only one transformation',
            id="a resource turned into others twice",
        ),
        pytest.param(
            KUEUE + "resources: {transformations: [{input: a, outputs: {b: many}}]}",
            "f.yaml: resources.transformations[0].outputs.b is \"many\": 'many' is not a quantity",
            id="a transformation into no quantity",
        ),
        pytest.param(
            KUEUE + "resources: {transformations: [{strategy: Retain}]}",
            "f.yaml: resources.transformations[0].input is not set: it is required",
            id="a transformation of nothing",
        ),
        pytest.param(
            KUEUE + "metrics: {customLabels: [{name: a, sourceLabelKey: b, sourceAnnotationKey: c}]}",
            'f.yaml: metrics.customLabels[0].sourceAnnotationKey is "c": sourceLabelKey and'
            " sourceAnnotationKey exclude each other",
            id="a metric label from two sources",
        ),
        pytest.param(
            KUEUE + "metrics: {customLabels: [{name: a, sourceKind: Workload}]}",
            "f.yaml: metrics.customLabels[0].trackedValues is not set: a label of Workloads needs",
            id="a metric label with a value for every Workload",
        ),
        pytest.param(
            KUEUE + "metrics: {customLabels: [" + ", ".join(f"{{name: l{n}}}" for n in range(7)) + "]}",
            "f.yaml: metrics.customLabels is 7: at most 6 may have sourceKind ClusterQueue",
            id="too many metric labels",
        ),
        pytest.param(
            KUEUE + "tls: {minVersion: VersionTLS13, cipherSuites: [A]}",
            'f.yaml: tls.cipherSuites is ["A"]: TLS 1.3 has no choice of cipher suites',
            id="cipher suites of TLS 1.3",
        ),
        pytest.param(
            KUEUE + "multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}",
            'f.yaml: multiKueue.incrementalDispatcherConfig is {"stepSize": 2}: needs'
            " multiKueue.dispatcherName kueue.x-k8s.io/multikueue-dispatcher-incremental",
            id="steps of a dispatcher that has none",
        ),
        pytest.param(
            KUEUE + "integrations: {frameworks: [pod]}\n"
            "managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}",
            'f.yaml: managedJobsNamespaceSelector is {"matchLabels": {"kubernetes.io/metadata.name":'
            ' "kube-system"}}: must not match the namespace kube-system while integrations.frameworks has',
            id="the system's pods in a queue",
        ),
        pytest.param(
            KUEUE + "integrations: {frameworks: [pod]}\n"
            "namespace: kueue-system\n"
            "managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kueue-system}}",
            'f.yaml: managedJobsNamespaceSelector is {"matchLabels": {"kubernetes.io/metadata.name":'
            ' "kueue-system"}}: must not match the namespace kueue-system while integrations.frameworks has',
            id="the pods of the namespace that the file names in a queue",
        ),
        pytest.param(
            KUEUE + "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
            "f.yaml: managedJobsNamespaceSelector is [\"In\"]: matchExpressions for 'a': In needs values",
            id="a selector that selects nothing",
        ),
        pytest.param(
            KUEUE + "leaderElection: {leaseDuration: 5s}",
            'f.yaml: leaderElection.leaseDuration is "5s": must be more than renewDeadline (10s)',
            id="a lease shorter than its deadline",
        ),
        pytest.param(
            KUEUE + "leaderElection: {renewDeadline: 2s}",
            'f.yaml: leaderElection.renewDeadline is "2s": must be more than retryPeriod (2s)',
            id="a deadline of Kueue's before the first renewal",
        ),
        pytest.param(
            KUEUE + "leaderElection: {retryPeriod: 0s}",
            'f.yaml: leaderElection.retryPeriod is "0s": must be more than 0s',
            id="renewals without a pause",
        ),
        pytest.param(
            BERTH + external(suspend="spec.suspend"),
            'f.yaml: integrations.external[0].suspend is "spec.suspend": must be a path, such as'
            " .spec.groups[0].template",
            id="a path of another kind without a dot",
        ),
        pytest.param(
            BERTH + external(kind="Train"),
            'f.yaml: integrations.external[0].kind is "Train": must be Kind.version.group,'
            " such as MyJob.v1.example.com",
            id="another kind without its group",
        ),
        pytest.param(
            BERTH + external(kind="Job.v1alpha1.batch.volcano.sh"),
            'f.yaml: integrations.external[0].kind is "Job.v1alpha1.batch.volcano.sh": Berth has a Job'
            " already, and tells kinds apart by this name",
            id="another kind with the name of a known one",
        ),
        pytest.param(
            BERTH + external(podSets=[{"template": ".spec.pods"}]),
            "f.yaml: integrations.external[0].podSets[0].name is not set: a pod set needs a name",
            id="a pod set of another kind without a name",
        ),
        pytest.param(
            BERTH + external(succeeded={"path": ".status.phase"}),
            "f.yaml: integrations.external[0].succeeded.values is not set: a path needs values",
            id="an end of another kind without values",
        ),
        pytest.param(
            BERTH + external(ready={"path": ".status.ready", "condition": "Ready"}),
            'f.yaml: integrations.external[0].ready is "Ready": needs either condition or path',
            id="a state of another kind by two signs",
        ),
        pytest.param(
            BERTH + "lease: {deadlineSeconds: 0.5}",
            "f.yaml: lease.deadlineSeconds is 0.5: must be more than renewSeconds (2)",
            id="a deadline before the first renewal",
        ),
        pytest.param(
            BERTH + "lease: {durationSeconds: 2}",
            "f.yaml: lease.durationSeconds is 2.0: must be more than deadlineSeconds (10)",
            id="a lease that ends before its leader stops",
        ),
        pytest.param(
            BERTH + "execution: {maxInFlight: 0}",
            "f.yaml: execution.maxInFlight is 0: must be at least 1",
            id="no request at all",
        ),
        pytest.param(
            BERTH
            + "extender: {profiles: [{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 101}]}",
            "f.yaml: extender.profiles[1].percentageOfNodesToScore is 101: must be at most 100",
            id="more nodes than all",
        ),
        pytest.param(
            BERTH + "extender: {profiles: [{schedulerName: a, percentageOfNodesToScore: -1}]}",
            "f.yaml: extender.profiles[0].percentageOfNodesToScore is -1: must be at least 0",
            id="fewer nodes than none",
        ),
        pytest.param(
            BERTH + "extender: {profiles: [{schedulerName: a, percentageOfNodesToScore: 12.5}]}",
            "f.yaml: extender.profiles[0].percentageOfNodesToScore is 12.5: must be",
            id="a share of nodes in halves",
        ),
        pytest.param(
            BERTH + "shard: Gold",
            "f.yaml: shard is \"Gold\": must be a DNS label: lower-case letters, digits and '-'",
            id="a shard in capitals",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\n",
            "f.yaml: document 1 is ConfigMap of v1; expected Configuration of"
            " config.kueue.x-k8s.io/v1beta1 or v1beta2, or ControllerConfig of berth.dev/v1alpha1, or"
            " SchedulerConfig of topology.scheduler/v1alpha1",
            id="another document",
        ),
        pytest.param("- a", "f.yaml: document 1 is not a mapping; expected", id="a list"),
        pytest.param(
            KUEUE + "---\n" + KUEUE,
            "f.yaml: document 2 is a second Configuration; one is expected",
            id="a document twice",
        ),
        pytest.param(KUEUE + "webhook: {port: [", "f.yaml: line 3, column 18 is not YAML", id="broken YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_a_sentence(text: str, want: str) -> None:
    (sentence,) = faults(text)

    assert sentence.startswith(want)


def test_all_faults_are_said_at_once() -> None:
    text = KUEUE + "webhook: {port: -1}\nclientConnection: {burst: many}\n---\n" + BERTH + "shard: ''\n"

    assert len(faults(text)) == 3


TOPOLOGY = (
    "apiVersion: topology.scheduler/v1alpha1\nkind: {kind}\nmetadata: {{name: topology-scheduler-config}}\n"
)


@pytest.mark.parametrize("kind", ["SchedulerConfig", "TopologySchedulerConfig"])
def test_the_topology_schedulers_document_is_a_policy(kind: str) -> None:
    spec = (
        "spec: {scoringWeights: {resourceAvailability: 1, topologyAlignment: 1, domainUtilization: 0,"
        " historicalPerformance: 0}, topologyConstraints: {maxNodesPerLeaf: 8, maxGPUsPerLeaf: 64}}\n"
    )
    config = load(KUEUE + "---\n" + TOPOLOGY.format(kind=kind) + spec)

    policy = config.default_policy
    assert policy is not None
    assert policy.aliases is Aliases.ARTICLES
    assert policy.placement == PlacementRules(
        domain_rules=DomainRules(max_nodes_per_leaf=8, max_gpus_per_leaf=64),
        weights=ScoringWeights(
            resource_availability=0.5,
            topology_alignment=0.5,
            domain_utilization=0.0,
            historical_performance=0.0,
        ),
    )


def test_without_such_a_document_there_is_no_policy() -> None:
    assert load(KUEUE).default_policy is None


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            "spec: {topologyConstraints: {maxNodesPerLeaf: 0}}",
            "f.yaml: spec.topologyConstraints.maxNodesPerLeaf is 0: must be at least 1",
            id="a leaf that takes nothing",
        ),
        pytest.param(
            "spec: {scoringWeights: {resourceAvailability: 2}}",
            "f.yaml: spec.scoringWeights.resourceAvailability is 2: must be at most 1",
            id="a weight of more than everything",
        ),
    ],
)
def test_a_wrong_document_of_the_topology_scheduler_is_refused(spec: str, want: str) -> None:
    assert faults(TOPOLOGY.format(kind="SchedulerConfig") + spec) == [want]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("[" * 5_000, "a test is nested too deep", id="nested deep"),
        pytest.param("kind: [a]", "a test: document 1 is ['a'] of None; expected", id="a list for a kind"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_a_sentence(text: str, want: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(text, source="a test")

    assert refused.value.sentences[0].startswith(want)
