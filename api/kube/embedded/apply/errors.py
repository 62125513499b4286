"""What the server answers when it refuses, in the words and codes of the real one.

    ApiError               a refusal that becomes a Status object
    ├── InvalidObject      the object breaks rules of its kind
    └── ConflictsOfFields  server-side apply met fields of other managers

    FieldError             one fault of one field; several make an ApiError with code 422

Clients tell refusals apart by `code` and `reason`, people read `message`: all three follow
k8s.io/apimachinery/pkg/api/errors and pkg/util/validation/field.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from api.kube.embedded.apply.schema import Json, JsonObject

# Caps the text of a value that a message repeats; a whole pod template would hide the sentence around it.
_MAX_SHOWN_CHARACTERS = 300


class Named(Protocol):
    """What a message says of a kind: `qualified` is "jobs.batch", `kind` "Job"."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def qualified(self) -> str: ...
    def details(self, name: str) -> JsonObject: ...


class ApiError(Exception):
    """A refusal: HTTP `code`, machine-readable `reason`, a sentence."""

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
        """Return the Status object that carries this refusal."""
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
    """The object breaks rules of its kind."""

    def __init__(self, message: str, *, details: JsonObject | None = None) -> None:
        super().__init__(422, "Invalid", message, details=details)


class ConflictsOfFields(ApiError):
    """Server-side apply without force would take fields that other managers own."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        """`conflicts` holds (who owns it, the field's path)."""
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
        """The fault as one sentence, the field first."""
        return f"{self.field}: {self.detail}" if self.field else self.detail

    def cause(self) -> JsonObject:
        """Return the fault as an entry of a Status' details."""
        return {"reason": self.reason, "message": self.detail, "field": self.field}


def _shown(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."


def invalid_value(field: str, value: Json, why: str) -> FieldError:
    """A value of the right type that breaks a rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def wrong_type(field: str, value: Json, why: str) -> FieldError:
    """A value of a wrong type in a custom resource."""
    return FieldError(field, "FieldValueTypeInvalid", f"Invalid value: {_shown(value)}: {why}")


def required(field: str, why: str = "") -> FieldError:
    """A field that must be there and is not."""
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {why}" if why else ""))


def unsupported(field: str, value: Json, supported: Iterable[Json]) -> FieldError:
    """A value outside its list of choices."""
    choices = ", ".join(_shown(choice) for choice in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {choices}"
    )


def duplicate(field: str, value: Json) -> FieldError:
    """A second item under the same key of a list that allows one."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def forbidden_field(field: str, why: str) -> FieldError:
    """A change or a field that is not allowed here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_long(field: str, limit: int) -> FieldError:
    """A text above its length."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list above its length."""
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def bad_request(message: str) -> ApiError:
    """A body or a parameter that cannot be read."""
    return ApiError(400, "BadRequest", message)


def not_found(kind: Named, name: str) -> ApiError:
    """There is no such object."""
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=kind.details(name))


def unknown_path() -> ApiError:
    """Nothing is served under this URL."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Named, name: str) -> ApiError:
    """The name is taken."""
    message = f'{kind.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=kind.details(name))


def conflict(kind: Named, name: str, why: str) -> ApiError:
    """The object is not in the state that the request was made for."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=kind.details(name))


def stale(kind: Named, name: str) -> ApiError:
    """The request carries an older resourceVersion than the object has."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: Named, name: str, faults: Sequence[FieldError]) -> InvalidObject:
    """The object breaks the rules of its kind."""
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
    """Admission refuses the request."""
    details = {**kind.details(name), **({"causes": list(causes)} if causes else {})}
    return ApiError(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', details=details)


def expired(message: str) -> ApiError:
    """The asked-for version is no longer kept; the client lists anew."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """The body is in a format that is not read here."""
    listed = ", ".join(accepted)
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {listed}",
    )


def method_not_allowed() -> ApiError:
    """The verb does not exist for this resource."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)
