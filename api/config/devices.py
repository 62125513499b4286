"""`resources.deviceClassMappings`: the rules of the section, and how devices are counted by it.

Source: Kueue, pkg/config/validation.go, validateDeviceClassMappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from api.config.kueue import CapacityOfDevices, Configuration, CounterOfDevices, DeviceClassMapping
from api.config.kueue import DeviceSource as SourceSection
from api.jobs.device_mapping import DeviceSettings, DeviceSource, Measure, resources_by_class
from api.parsing.cel.parser import compile_cel
from api.parsing.cel.values import CelError
from api.parsing.faults import ABSENT, FieldError
from api.validation.names import LABEL_KEY_RULE, duplicates, is_label_key

_PATH = "resources.deviceClassMappings"
# The feature gate of each measure, and its default in Kueue.
_GATES = {
    Measure.COUNTER: ("KueueDRAIntegrationPartitionableDevices", True),
    Measure.CAPACITY: ("KueueDRAIntegrationConsumableCapacity", False),
}


def device_settings(kueue: Configuration) -> DeviceSettings:
    """Return how devices are counted. The configuration keeps the rules below."""
    gates, mappings = kueue.feature_gates, kueue.resources.device_class_mappings
    sources: dict[str, tuple[DeviceSource, ...]] = {}
    for mapping in mappings:
        own = tuple(_source(mapping, one) for one in mapping.sources)
        for name in mapping.device_class_names:
            sources[name] = (*sources.get(name, ()), *own)
    return DeviceSettings(
        is_on=gates.get("KueueDRAIntegration", True),
        refuses_if_off=gates.get("KueueDRARejectWorkloadsWhenDRADisabled", True),
        with_extended=gates.get("KueueDRAIntegrationExtendedResource", True),
        resources=resources_by_class((one.name, one.device_class_names) for one in mappings),
        sources={name: own for name, own in sources.items() if own},
    )


def _measured(source: SourceSection) -> tuple[Measure, CounterOfDevices | CapacityOfDevices] | None:
    """Return what a source charges; None unless exactly one of both is set."""
    found = [
        (measure, given)
        for measure, given in ((Measure.COUNTER, source.counter), (Measure.CAPACITY, source.capacity))
        if given is not None
    ]
    return found[0] if len(found) == 1 else None


def _source(mapping: DeviceClassMapping, source: SourceSection) -> DeviceSource:
    found = _measured(source)
    assert found is not None
    measure, given = found
    return DeviceSource(
        measure=measure,
        resource=mapping.name,
        driver=given.driver,
        name=given.name,
        selector=given.device_selector.cel.expression,
    )


def device_class_errors(configuration: Configuration) -> Iterator[FieldError]:
    """Yield the violations of rules between the mappings."""
    mappings = configuration.resources.device_class_mappings
    for name in duplicates(mapping.name for mapping in mappings):
        yield FieldError(path=_PATH, value=name, rule="names must be unique")
    for index, mapping in enumerate(mappings):
        yield from _mapping(f"{_PATH}[{index}]", mapping)
        for number, source in enumerate(mapping.sources):
            path = f"{_PATH}[{index}].sources[{number}]"
            yield from _source_errors(path, source, configuration.feature_gates)
    yield from _twice(mappings)


def _mapping(path: str, mapping: DeviceClassMapping) -> Iterator[FieldError]:
    names = [(f"{path}.name", mapping.name)]
    names += [(f"{path}.deviceClassNames[{at}]", one) for at, one in enumerate(mapping.device_class_names)]
    for where, name in names:
        if not is_label_key(name):
            yield FieldError(path=where, value=name, rule=LABEL_KEY_RULE)
    if len({found[0] for one in mapping.sources if (found := _measured(one)) is not None}) > 1:
        yield FieldError(
            path=f"{path}.sources", value=len(mapping.sources), rule="must not mix counter and capacity"
        )
    for name in duplicates(mapping.device_class_names):
        yield FieldError(path=f"{path}.deviceClassNames", value=name, rule="names must be unique")


def _twice(mappings: list[DeviceClassMapping]) -> Iterator[FieldError]:
    """Yield classes of several mappings, which is allowed only where each counts another counter of them."""
    known: dict[str, tuple[str, set[str]]] = {}
    for index, mapping in enumerate(mappings):
        first = mapping.sources[0].counter if mapping.sources else None
        counter = first.name if first is not None else ""
        for at, name in enumerate(dict.fromkeys(mapping.device_class_names)):
            resource, counters = known.setdefault(name, (mapping.name, set()))
            path = f"{_PATH}[{index}].deviceClassNames[{at}]"
            if resource != mapping.name and not (counter and counters):
                yield FieldError(path=path, value=name, rule=f"is already mapped to resource {resource}")
            elif counter in counters:
                yield FieldError(path=path, value=name, rule=f"has a source for counter {counter} already")
            if counter:
                counters.add(counter)


def _source_errors(path: str, source: SourceSection, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    found = _measured(source)
    if found is None:
        yield FieldError(path=path, value=ABSENT, rule="must set exactly one of counter and capacity")
        return
    measure, given = found
    gate, default = _GATES[measure]
    if not gates.get(gate, default):
        yield FieldError(path=f"{path}.{measure}", value=given.name, rule=f"needs featureGates.{gate}")
    expression = given.device_selector.cel.expression
    try:
        compile_cel(expression, ("device",))
    except CelError as error:
        where = f"{path}.{measure}.deviceSelector.cel.expression"
        yield FieldError(path=where, value=expression, rule=f"is not CEL: {error}")
