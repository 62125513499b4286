"""What `spec.sparkConf` of a SparkApplication may not say: how many pods there are, and what they request.

The operator gives each of its keys to spark-submit, where the last word wins: a key counts only where the
field for the same is absent, because fields come after it. `memoryOverheadFactor` alone comes before.
Source: Spark operator v2.5, internal/controller/sparkapplication/submission.go; Spark 4.0, the settings of
its core and of resource-managers/kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from api.jobs.owners.paths import Body, Path, path_text, value_at
from api.parsing.faults import FieldError


class _Place(NamedTuple):
    """The field to use in place of a key, and the fields of which each leaves the key without effect."""

    field: Path
    over: tuple[Path, ...] = ()


def _of_role(role: str) -> dict[str, _Place]:
    cores, overhead, template = (role, "coreRequest"), (role, "memoryOverhead"), (role, "template")
    beyond_heap = _Place(overhead, (overhead,))
    return {
        f"spark.{role}.cores": _Place(cores, (cores, (role, "cores"))),
        f"spark.kubernetes.{role}.request.cores": _Place(cores, (cores,)),
        f"spark.{role}.memory": _Place((role, "memory"), ((role, "memory"),)),
        f"spark.{role}.memoryOverhead": beyond_heap,
        f"spark.{role}.memoryOverheadFactor": beyond_heap,
        f"spark.{role}.minMemoryOverhead": beyond_heap,
        # Spark still reads this older name.
        f"spark.yarn.{role}.memoryOverhead": beyond_heap,
        f"spark.kubernetes.{role}.podTemplateFile": _Place(template, (template,)),
    }


_INSTANCES: Path = ("executor", "instances")
_PLACES: Mapping[str, _Place] = {
    **_of_role("driver"),
    **_of_role("executor"),
    "spark.executor.instances": _Place(_INSTANCES, (_INSTANCES,)),
    "spark.executor.pyspark.memory": _Place(("executor", "memoryOverhead")),
    "spark.kubernetes.memoryOverheadFactor": _Place(("memoryOverheadFactor",)),
}
# What these change is nothing while they are false.
_SWITCHES: Mapping[str, _Place] = {
    "spark.dynamicAllocation.enabled": _Place(_INSTANCES),
    "spark.streaming.dynamicAllocation.enabled": _Place(_INSTANCES),
    "spark.memory.offHeap.enabled": _Place(("executor", "memoryOverhead")),
}
_DEVICES = re.compile(r"spark\.(?P<role>driver|executor)\.resource\.(?P<name>.+)\.amount")


def conf_faults(spec: Body) -> Iterator[FieldError]:
    """Yield the keys that change how many pods there are or what they request, which no Workload counts."""
    conf = spec.get("sparkConf") or {}
    for key, value in sorted(conf.items()):
        path = f"spec.sparkConf[{key}]"
        if place := _place(spec, key, value):
            rule = f"its Workload does not count it; set {path_text(('spec', *place.field))} in place of it"
            yield FieldError(path=path, value=value, rule=rule)
        elif (found := _DEVICES.fullmatch(key)) and not _is_counted(spec, found):
            role = path_text(("spec", found["role"], "gpu"))
            rule = f"its Workload does not count it; set {role} to the same vendor/name and quantity"
            yield FieldError(path=path, value=value, rule=rule)


def _place(spec: Body, key: str, value: Any) -> _Place | None:
    """Return what to use in place of a key that has an effect."""
    if key in _SWITCHES:
        return None if str(value).strip().lower() == "false" else _SWITCHES[key]
    place = _PLACES.get(key)
    if place is None or any(value_at(spec, one) is not None for one in place.over):
        return None
    return place


def _is_counted(spec: Body, found: re.Match[str]) -> bool:
    """Return whether a role has the same devices in its field. Spark needs the key too, to place tasks."""
    conf, role, name = spec["sparkConf"], found["role"], found["name"]
    gpu = value_at(spec, (role, "gpu")) or {}
    wanted = f"{conf.get(f'spark.{role}.resource.{name}.vendor')}/{name}", str(conf[found.string])
    return (gpu.get("name"), str(gpu.get("quantity"))) == wanted
