"""What a request asks for beside its body, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.kube.embedded.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write request says beside its body."""

    manager: str
    subresource: str = ""
    dry_run: bool = False
    # Strict refuses fields that the kind does not have, Warn names them, Ignore drops them silently.
    field_validation: str = "Warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """What a delete request says. None leaves the choice to the kind."""

    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What a write led to: the object as it is now (or last was), and what to tell the client."""

    stored: Stored
    created: bool = False
    deleted: bool = False
    warnings: Sequence[str] = ()
