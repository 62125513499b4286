"""The configuration file: its text, and its section `extender`, which takes effect while a process runs.

The kubelet updates a mounted ConfigMap in place, so the file is read again regularly. All other sections are
read at the start: they set up ports, watches and leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from admission.controller.runtime.logs import Log
from api.config.berth import ExtenderSettings
from api.config.loading import ConfigError, load_config

log = Log("berth.configuration")

# The kubelet takes up to a minute to update a mounted ConfigMap; this adds little to it.
LOOK_SECONDS = 5.0


def read_text(path: Path) -> str:
    """Return the text of a configuration file; the files of a folder that end in .yaml count as one.

    Raises OSError, UnicodeDecodeError, and ConfigError for a folder without such a file.
    """
    # The files of a folder are as many documents: each ConfigMap that is mounted there brings its own.
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise ConfigError([f"{path} has no file that ends in .yaml"])
    return "\n---\n".join(file.read_text(encoding="utf-8") for file in files)


class ConfigFile:
    """Follows a file. `take` is called with the section `extender` of each text that can be read."""

    def __init__(self, path: Path, take: Callable[[ExtenderSettings], None]) -> None:
        self._path = path
        self._take = take
        self._text = ""
        self._complained = ""

    async def run(self) -> None:
        """Read the file regularly until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Read the file. A text that breaks rules is logged once, and what was in force stays so."""
        try:
            text = read_text(self._path)
            if text == self._text:
                return
            config = load_config(text, source=str(self._path))
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            if str(error) != self._complained:
                log.warning("configuration-not-taken", file=self._path, error=error)
            self._complained = str(error)
            return
        self._text, self._complained = text, ""
        self._take(config.berth.extender)
