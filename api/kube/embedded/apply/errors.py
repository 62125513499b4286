"""The errors that the server returns, with the messages and codes of the real one.

    ApiError               an error that is returned as a Status object
    ├── InvalidObject      the object violates rules of its kind
    └── ConflictsOfFields  server-side apply would change fields of other managers

    FieldError             one fault of one field; several become an ApiError with code 422

Clients distinguish errors by `code` and `reason`, people read `message`; all three
follow k8s.io/apimachinery/pkg/api/errors and pkg/util/validation/field.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from api.kube.embedded.apply.schema import Json, JsonObject

# Maximum length of a value that a message repeats; a whole pod template would make the message unreadable.
_MAX_SHOWN_CHARACTERS = 300


class Named(Protocol):
    """The name of a kind in messages: `qualified` is "jobs.batch", `kind` is "Job"."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def qualified(self) -> str: ...
    def details(self, name: str) -> JsonObject: ...


class ApiError(Exception):
    """An error response: HTTP `code`, machine-readable `reason`, and a message."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> JsonObject:
        """Return the Status object for this error."""
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return {**status, "code": self.code}


class InvalidObject(ApiError):
    """The object violates rules of its kind."""

    def __init__(self, message: str, *, details: JsonObject | None = None) -> None:
        super().__init__(422, "Invalid", message, details=details)


class ConflictsOfFields(ApiError):
    """Server-side apply without force would change fields that other managers own."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        """Create the error; `conflicts` contains (owner, path of the field) pairs."""
        if len(conflicts) == 1:
            owner, path = conflicts[0]
            message = f"Apply failed with 1 conflict: conflict with {owner}: {path}"
        else:
            lines = []
            for owner in sorted({owner for owner, _ in conflicts}):
                lines += [
                    f"conflicts with {owner}:",
                    *(f"- {path}" for who, path in conflicts if who == owner),
                ]
            message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": path}
            for owner, path in conflicts
        ]
        super().__init__(409, "Conflict", message, details={"causes": causes})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field."""

    field: str
    reason: str
    detail: str

    @property
    def text(self) -> str:
        """The fault as one sentence that starts with the field."""
        return f"{self.field}: {self.detail}" if self.field else self.detail

    def cause(self) -> JsonObject:
        """Return the fault as an entry in the details of a Status."""
        return {"reason": self.reason, "message": self.detail, "field": self.field}


def _shown(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."


def invalid_value(field: str, value: Json, why: str) -> FieldError:
    """Return the fault of a value that has the right type but violates a rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def wrong_type(field: str, value: Json, why: str) -> FieldError:
    """Return the fault of a value that has a wrong type in a custom resource."""
    return FieldError(field, "FieldValueTypeInvalid", f"Invalid value: {_shown(value)}: {why}")


def required(field: str, why: str = "") -> FieldError:
    """Return the fault of a required field that is missing."""
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {why}" if why else ""))


def unsupported(field: str, value: Json, supported: Iterable[Json]) -> FieldError:
    """Return the fault of a value that is not in its list of choices."""
    choices = ", ".join(_shown(choice) for choice in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {choices}"
    )


def duplicate(field: str, value: Json) -> FieldError:
    """Return the fault of a second item with the same key in a list with unique keys."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def forbidden_field(field: str, why: str) -> FieldError:
    """Return the fault of a field or change that is not allowed."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_long(field: str, limit: int) -> FieldError:
    """Return the fault of a text that exceeds its maximum length."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """Return the fault of a list that exceeds its maximum length."""
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def bad_request(message: str) -> ApiError:
    """Return the error for a malformed body or parameter (400)."""
    return ApiError(400, "BadRequest", message)


def not_found(kind: Named, name: str) -> ApiError:
    """Return the error for an object that does not exist (404)."""
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=kind.details(name))


def unknown_path() -> ApiError:
    """Return the error for a URL at which nothing is served (404)."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Named, name: str) -> ApiError:
    """Return the error for a name that is already in use (409)."""
    message = f'{kind.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=kind.details(name))


def conflict(kind: Named, name: str, why: str) -> ApiError:
    """Return the error for an object that is not in the state that the request expects (409)."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=kind.details(name))


def stale(kind: Named, name: str) -> ApiError:
    """Return the error for a request with an outdated resourceVersion (409)."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: Named, name: str, faults: Sequence[FieldError]) -> InvalidObject:
    """Return the error for an object that violates the rules of its kind (422)."""
    shown = faults[0].text if len(faults) == 1 else "[" + ", ".join(fault.text for fault in faults) + "]"
    title = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.kind,
        "causes": [fault.cause() for fault in faults],
    }
    return InvalidObject(f'{title} "{name}" is invalid: {shown}', details=details)


def forbidden(kind: Named, name: str, why: str, *, causes: Sequence[JsonObject] = ()) -> ApiError:
    """Return the error for a request that admission rejects (403)."""
    details = {**kind.details(name), **({"causes": list(causes)} if causes else {})}
    return ApiError(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', details=details)


def expired(message: str) -> ApiError:
    """Return the error for a version that is no longer kept (410); the client must list again."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """Return the error for a body in an unsupported format (415)."""
    listed = ", ".join(accepted)
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {listed}",
    )


def method_not_allowed() -> ApiError:
    """Return the error for a verb that the resource does not support (405)."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)
