"""AdmissionReview (admission.k8s.io/v1): requests of kube-apiserver to a webhook, and the responses.

A mutating webhook responds with a JSON patch, a validating one with a verdict. The object stays undecoded
until its kind is known. Source: k8s.io/api/admission/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from api.objects.common import Wire

_VERSION = "admission.k8s.io/v1"
_NULL = msgspec.Raw(b"null")
# kube-apiserver truncates or drops warnings of more than 256 characters.
_WARNING_CHARACTERS = 250


class Operation(StrEnum):
    """The operation on the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class GroupVersionKind(Wire, frozen=True):
    """The kind of the object in the request."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Wire, frozen=True):
    """The user of the request, as the API server has authenticated it."""

    username: str = ""


class AdmissionRequest(Wire, frozen=True):
    """One request. `object` is null for DELETE, `old_object` for CREATE."""

    uid: str
    operation: Operation
    kind: GroupVersionKind = GroupVersionKind()
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _Review(Wire, frozen=True):
    request: AdmissionRequest


def read_review(body: bytes | bytearray) -> AdmissionRequest:
    """Return the request of a review. Raises ValueError if the body is not an AdmissionReview."""
    try:
        return _REVIEW.decode(body).request
    # JSON that is nested too deeply is the client's fault, like any other malformed body.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is no AdmissionReview of {_VERSION}: {error}") from error


def read_object(raw: msgspec.Raw) -> dict[str, Any]:
    """Return the object in these bytes; empty for null.

    Raises ValueError for any other JSON value, and if metadata or its labels are no objects.
    """
    found = msgspec.json.decode(raw)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"the object under review is no object but {type(found).__name__}")
    metadata = found.get("metadata") or {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("labels") or {}, dict):
        raise ValueError("metadata and metadata.labels of the object under review must be objects")
    return found


def allow(uid: str, *, patch: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> bytes:
    """Return a response that allows the request, with a patch to apply and warnings for the user."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings:
        response["warnings"] = [warning[:_WARNING_CHARACTERS] for warning in warnings]
    return _answer(response)


def refuse(uid: str, message: str) -> bytes:
    """Return a response that denies the request, with 403 Forbidden as Kueue's webhooks do.

    Kube-apiserver prefixes the message with the webhook's name.
    """
    status = {"status": "Failure", "code": 403, "reason": "Forbidden", "message": message}
    return _answer({"uid": uid, "allowed": False, "status": status})


def pointer(*parts: str) -> str:
    """Return the JSON pointer (RFC 6901) to the field with this path."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def labels_patch(obj: Mapping[str, Any], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON patch that adds labels to an object, which may have none yet; empty without labels."""
    if not labels:
        return []
    if not (obj.get("metadata") or {}).get("labels"):
        return [{"op": "add", "path": pointer("metadata", "labels"), "value": dict(labels)}]
    return [
        {"op": "add", "path": pointer("metadata", "labels", key), "value": value}
        for key, value in labels.items()
    ]


def addition(obj: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return the step of a JSON patch that sets the value at a path, with the objects on the way to it."""
    found: Any = obj
    for index, part in enumerate(path):
        found = found.get(part)
        if not isinstance(found, dict):
            # The first that is missing, or the value itself.
            for inner in reversed(path[index + 1 :]):
                value = {inner: value}
            return {"op": "add", "path": pointer(*path[: index + 1]), "value": value}
    return {"op": "add", "path": pointer(*path), "value": value}


def changes_patch(obj: Mapping[str, Any], changes: Mapping[tuple[str, ...], object]) -> list[dict[str, Any]]:
    """Return the JSON patch that sets the values at these paths as a whole.

    Values that are equal are left out.

    The parent objects exist: they are `metadata`, `spec`, or objects that the API server fills in.
    """
    patch = []
    for path, value in changes.items():
        found: Any = obj
        for part in path:
            found = (found or {}).get(part)
        if found != value:
            # In a JSON patch, `add` replaces a field that exists.
            patch.append({"op": "add", "path": pointer(*path), "value": value})
    return patch


def _answer(response: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": "AdmissionReview", "response": response})


_REVIEW = msgspec.json.Decoder(_Review)
