"""`resources.deviceClassMappings`. Rules: Kueue's, pkg/config/validation.go."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from api.config.loading import ConfigError, ControllerConfig, load_config
from api.jobs.device_mapping import Measure

GPU = {"name": "gpus", "deviceClassNames": ["gpu.example.com"]}


def load(*mappings: dict[str, Any], **gates: bool) -> ControllerConfig:
    body = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "resources": {"deviceClassMappings": list(mappings)},
        "featureGates": gates,
    }
    return load_config(yaml.safe_dump(body), source="f.yaml")


def source(measure: str = "counter", name: str = "memory", expression: str = "true") -> dict[str, Any]:
    selector = {"cel": {"expression": expression}}
    return {measure: {"name": name, "driver": "gpu.example.com", "deviceSelector": selector}}


def counting(resource: str, counter: str) -> dict[str, Any]:
    return {**GPU, "name": resource, "sources": [source(name=counter)]}


def test_a_mapping_says_which_resource_counts_a_class() -> None:
    devices = load(GPU, {"name": "nics", "deviceClassNames": ["a", "b"]}).resources.devices

    assert devices.resources == {"gpu.example.com": "gpus", "a": "nics", "b": "nics"}
    assert devices.sources == {}


def test_several_counters_of_a_class_are_counted_side_by_side() -> None:
    devices = load(counting("memory", "m"), counting("cores", "c")).resources.devices

    found = [(one.measure, one.resource, one.name) for one in devices.sources["gpu.example.com"]]
    assert found == [(Measure.COUNTER, "memory", "m"), (Measure.COUNTER, "cores", "c")]


def test_capacity_is_counted_with_its_gate() -> None:
    mapping = {**GPU, "sources": [source("capacity")]}
    devices = load(mapping, KueueDRAIntegrationConsumableCapacity=True).resources.devices

    assert devices.sources["gpu.example.com"][0].measure is Measure.CAPACITY


PATH = "f.yaml: resources.deviceClassMappings"


@pytest.mark.parametrize(
    ("mappings", "gates", "want"),
    [
        pytest.param([GPU, GPU], {}, f'{PATH} is "gpus": names must be unique', id="a resource twice"),
        pytest.param(
            [GPU, {**GPU, "name": "other"}],
            {},
            f'{PATH}[1].deviceClassNames[0] is "gpu.example.com": is already mapped to resource gpus',
            id="a class of two resources",
        ),
        pytest.param(
            [counting("one", "m"), counting("two", "m")],
            {},
            f'{PATH}[1].deviceClassNames[0] is "gpu.example.com": has a source for counter m already',
            id="a counter of two resources",
        ),
        pytest.param(
            [counting("one", "m"), {**GPU, "name": "two"}],
            {},
            f'{PATH}[1].deviceClassNames[0] is "gpu.example.com": is already mapped to resource one',
            id="a class that is counted as a whole and by parts",
        ),
        pytest.param(
            [{**GPU, "deviceClassNames": ["a", "a"]}],
            {},
            f'{PATH}[0].deviceClassNames is "a": names must be unique',
            id="a class twice",
        ),
        pytest.param(
            [{**GPU, "name": "a b"}], {}, f'{PATH}[0].name is "a b": must be a label key', id="a name"
        ),
        pytest.param(
            [{**GPU, "sources": [{}]}],
            {},
            f"{PATH}[0].sources[0] is not set: must set exactly one of counter and capacity",
            id="a source of nothing",
        ),
        pytest.param(
            [{**GPU, "sources": [source(), source("capacity")]}],
            {"KueueDRAIntegrationConsumableCapacity": True},
            f"{PATH}[0].sources is 2: must not mix counter and capacity",
            id="both measures in one mapping",
        ),
        pytest.param(
            [{**GPU, "sources": [source("capacity")]}],
            {},
            f'{PATH}[0].sources[0].capacity is "memory":'
            " needs featureGates.KueueDRAIntegrationConsumableCapacity",
            id="a capacity without its gate",
        ),
        pytest.param(
            [{**GPU, "sources": [source()]}],
            {"KueueDRAIntegrationPartitionableDevices": False},
            f'{PATH}[0].sources[0].counter is "memory":'
            " needs featureGates.KueueDRAIntegrationPartitionableDevices",
            id="a counter without its gate",
        ),
        pytest.param(
            [{**GPU, "sources": [source(expression="device.driver ==")]}],
            {},
            f'{PATH}[0].sources[0].counter.deviceSelector.cel.expression is "device.driver ==": is not CEL:',
            id="a selector that is not CEL",
        ),
    ],
)
def test_a_mapping_that_breaks_a_rule_is_named(
    mappings: list[dict[str, Any]], gates: dict[str, bool], want: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*mappings, **gates)

    assert [one for one in caught.value.sentences if one.startswith(want)]
