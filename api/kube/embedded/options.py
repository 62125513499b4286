"""Options of a request besides its body, and its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.kube.embedded.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write request."""

    manager: str
    subresource: str = ""
    dry_run: bool = False
    # Strict rejects unknown fields, Warn returns warnings for them, Ignore drops them silently.
    field_validation: str = "Warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a delete request. None means that the kind decides."""

    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """The outcome of a write: the object in its current or last state, and warnings for the client."""

    stored: Stored
    created: bool = False
    deleted: bool = False
    warnings: Sequence[str] = ()
