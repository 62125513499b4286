"""Kueue's Configuration file, as the commands that decide without a controller read it."""

from __future__ import annotations

from pathlib import Path

from admission.cli.errors import WrongUsageError
from admission.engine import EngineSettings
from admission.settings import engine_settings
from api.config import ConfigError, load_config


def read_settings(config: Path | None) -> EngineSettings:
    """Return what the file says of deciding, the defaults without one. Raises WrongUsageError."""
    if config is None:
        return EngineSettings()
    try:
        loaded = load_config(config.read_text(encoding="utf-8"), source=str(config))
    except ConfigError as error:
        raise WrongUsageError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsageError(f"cannot read the configuration {config}: {error}") from error
    return engine_settings(loaded)
