"""Imports modules of commands when they are asked for."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def load(name: str) -> ModuleType:
    """Import a module and return it, without a garbage collection meanwhile.

    What an import makes is kept. To look for garbage in it takes a tenth of the CPU time of a short command.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if was_enabled:
            gc.enable()
