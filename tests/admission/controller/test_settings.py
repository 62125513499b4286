"""What a configuration file says of namespaces and of the keys that Workloads copy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.settings import cluster_state_settings
from api.config.loading import load_config
from api.jobs.job_workload import CopiedKeys
from api.parsing.quantities import set_byte_resources, to_text
from api.selectors import matches_selector

_KUEUE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
_WITH_PODS = _KUEUE + "integrations: {frameworks: [batch/job, pod]}\n"
_AS_INSTALLED = _WITH_PODS + (
    "managedJobsNamespaceSelector:\n"
    "  matchExpressions:\n"
    "  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}\n"
)


@pytest.mark.parametrize(
    ("text", "unmanaged"),
    [
        pytest.param(_KUEUE, {"kube-system", "berth-system"}, id="Kueue's default"),
        pytest.param(
            _AS_INSTALLED,
            {"kube-system", "kueue-system", "berth-system"},
            id="the file of a Kueue installation, which cannot know Berth's namespace",
        ),
        pytest.param(
            _KUEUE
            + "managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: berth-system}}",
            {"kube-system", "kueue-system", "berth-system", "team"},
            id="a file that names Berth's namespace alone",
        ),
    ],
)
def test_unmanaged_are(text: str, unmanaged: set[str]) -> None:
    config = load_config(text, source="kueue.yaml")

    selector = cluster_state_settings(config, namespace="berth-system").namespace_selector

    assert selector is not None
    names = {"kube-system", "kueue-system", "berth-system", "team"}
    managed = {name for name in names if matches_selector(selector, {"kubernetes.io/metadata.name": name})}
    assert names - managed == unmanaged


_CUSTOM_LABELS = (
    "metrics:\n"
    "  customLabels:\n"
    "  - {name: team, sourceKind: Workload, trackedValues: [a]}\n"
    "  - {name: cost, sourceKind: Workload, sourceAnnotationKey: example.com/cost, trackedValues: [b]}\n"
    "  - {name: room, sourceKind: ClusterQueue}\n"
    "integrations: {labelKeysToCopy: [owner]}\n"
)


@pytest.mark.parametrize(
    ("gate", "want"),
    [
        pytest.param(
            "featureGates: {CustomMetricLabels: true}\n",
            CopiedKeys(labels=("owner", "team"), annotations=("example.com/cost",)),
            id="what the metrics of Workloads are labelled with",
        ),
        pytest.param("", CopiedKeys(labels=("owner",)), id="without the gate only labelKeysToCopy"),
    ],
)
def test_workloads_copy(gate: str, want: CopiedKeys) -> None:
    config = load_config(_KUEUE + _CUSTOM_LABELS + gate, source="kueue.yaml")

    assert cluster_state_settings(config, namespace="berth-system").jobs.copied == want


@pytest.fixture
def plain_numbers() -> Iterator[None]:
    """Forget afterwards which resources a configuration has called bytes."""
    yield
    set_byte_resources(())


_PARTS = _KUEUE + (
    "resources:\n"
    "  deviceClassMappings:\n"
    "  - name: gpu.memory\n"
    "    deviceClassNames: [mig]\n"
    "    sources:\n"
    "    - counter: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: 'true'}}}\n"
)


@pytest.mark.usefixtures("plain_numbers")
@pytest.mark.parametrize(
    ("text", "resource", "want"),
    [
        pytest.param(_PARTS, "gpu.memory", "4864Mi", id="a counter of devices is bytes"),
        pytest.param(_PARTS, "gpus", "5100273664", id="other resources are numbers"),
        pytest.param(_KUEUE, "gpu.memory", "5100273664", id="without the mapping it is a number"),
    ],
)
def test_what_a_configuration_counts_in_devices_is_written_as_bytes(
    text: str, resource: str, want: str
) -> None:
    cluster_state_settings(load_config(_PARTS, source="f.yaml"), namespace="berth-system")
    cluster_state_settings(load_config(text, source="f.yaml"), namespace="berth-system")

    assert to_text(resource, 4864 * 2**20) == want
