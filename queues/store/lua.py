"""The Lua scripts, each one transition, read once from the files beside this module.

Every script begins with the text of `scripts/prelude.lua`: the check of fence and types stands in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script: its text, and the digest under which Redis knows it once it has been loaded."""

    name: str
    source: str
    digest: str


def _read(name: str) -> str:
    return files("queues.store").joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _load(name: str) -> Script:
    # One text each: a script must not call another, and Lua in Redis has no include.
    source = _read("prelude") + _read(name)
    # Redis names scripts by SHA-1; nothing is kept secret by it.
    return Script(name=name, source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


COMMIT = _load("commit")
REMOVE = _load("remove")
RESTORE = _load("restore")
LIVE = _load("live")
FENCE = _load("fence")
SEED = _load("seed")
DECISIONS = _load("decisions")
PLAN_WRITE = _load("plan_write")
PLAN_READ = _load("plan_read")
PLAN_STATE = _load("plan_state")
