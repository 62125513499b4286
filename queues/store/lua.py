"""The Lua scripts, one for each transition, read once from the folder `scripts` beside this module.

Every script begins with the text of `scripts/prelude.lua`, which holds the checks of fence and types.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script: its text, and the SHA-1 digest under which Redis knows it once it has been loaded."""

    name: str
    source: str
    digest: str


def _read(name: str) -> str:
    return files("queues.store").joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _load(name: str) -> Script:
    # One text per script, because Lua in Redis has no include and a script cannot call another.
    source = _read("prelude") + _read(name)
    # Redis identifies scripts by SHA-1. The digest protects nothing.
    return Script(name=name, source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


COMMIT = _load("commit")
REMOVE = _load("remove")
RESTORE = _load("restore")
LIVE = _load("live")
FENCE = _load("fence")
SEED = _load("seed")
LIFE = _load("life")
VOUCH = _load("vouch")
DECISIONS = _load("decisions")
PLAN_WRITE = _load("plan_write")
PLAN_READ = _load("plan_read")
PLAN_STATE = _load("plan_state")
