"""The hardware rules of a configuration file: its section `extender`."""

from __future__ import annotations

from admission.hardware.rules import BUILT_IN, HardwareRules, Rule
from api.config.berth import ExtenderSettings


def hardware_rules(settings: ExtenderSettings) -> HardwareRules:
    """Return the configured rules. A profile with the name of a built-in one replaces it."""
    given = {one.scheduler_name: tuple(map(Rule, one.filters)) for one in settings.profiles}
    return HardwareRules(
        profiles={**BUILT_IN, **given},
        required_topologies=tuple(word.lower() for word in settings.required_topologies),
        min_gpu_memory_gb=settings.min_gpu_memory_gb,
    )
