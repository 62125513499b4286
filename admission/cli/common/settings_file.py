"""Reads Kueue's Configuration file for the commands."""

from __future__ import annotations

from pathlib import Path

from admission.cli.common.errors import WrongUsageError
from admission.controller.runtime.config_file import read_text
from admission.engine.engine import EngineSettings
from admission.engine.settings import engine_settings
from api.config.loading import ConfigError, ControllerConfig, load_config
from api.jobs.device_mapping import DeviceSettings
from api.jobs.resource_requests import ResourceSettings

# Which resource counts a class is in the configuration alone. What it says of devices is left to the
# Workload's own condition, which the controller has written by it.
_UNKNOWN_DEVICES = ResourceSettings(devices=DeviceSettings(is_on=False, refuses_if_off=False))


def read_settings_of_cluster(config: Path | None) -> EngineSettings:
    """Return the settings of the file for a cluster's objects; for None the defaults, which count no devices.

    Raises WrongUsageError.
    """
    return EngineSettings(resources=_UNKNOWN_DEVICES) if config is None else read_settings(config)


def read_settings(config: Path | None) -> EngineSettings:
    """Return the engine settings of the file, or the defaults for None. Raises WrongUsageError."""
    return EngineSettings() if config is None else engine_settings(read_config(config))


def read_config(config: Path | None) -> ControllerConfig:
    """Return the configuration in the file, or the defaults for None. Raises WrongUsageError.

    The files of a folder that end in .yaml count as one.
    """
    if config is None:
        return ControllerConfig()
    try:
        return load_config(read_text(config), source=str(config))
    except ConfigError as error:
        # Report all faults of the file at once. Otherwise each start would report only the next one.
        raise WrongUsageError("; ".join(error.sentences)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsageError(f"cannot read the configuration {config}: {error}") from error
