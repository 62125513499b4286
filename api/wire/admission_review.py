"""AdmissionReview (admission.k8s.io/v1): what kube-apiserver asks a webhook, and the answers.

A mutating webhook answers with a JSON patch, a validating one with a verdict. The object is kept as bytes
until somebody knows its kind.
Source: k8s.io/api/admission/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from api.objects import Wire

_VERSION = "admission.k8s.io/v1"
_NULL = msgspec.Raw(b"null")
# kube-apiserver cuts warnings off at 256 characters, or drops them.
_WARNING_CHARACTERS = 250


class Operation(StrEnum):
    """What is being done to the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class GroupVersionKind(Wire, frozen=True):
    """The kind in which the object is sent."""

    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(Wire, frozen=True):
    """One question. `object` is null for DELETE, `old_object` for CREATE."""

    uid: str
    operation: Operation
    kind: GroupVersionKind = GroupVersionKind()
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _Review(Wire, frozen=True):
    request: AdmissionRequest


def read_review(body: bytes | bytearray) -> AdmissionRequest:
    """Return the question in a review. Raises ValueError where there is none."""
    try:
        return _REVIEW.decode(body).request
    # JSON nested too deep is the caller's fault like any other body that cannot be read.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is no AdmissionReview of {_VERSION}: {error}") from error


def read_object(raw: msgspec.Raw) -> dict[str, Any]:
    """Return the object in these bytes; empty for none. Raises ValueError for anything else."""
    found = msgspec.json.decode(raw)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"the object under review is no object but {found!r}")
    return found


def allow(uid: str, *, patch: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> bytes:
    """Return consent, with the changes to make and what the user is to be told besides."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings:
        response["warnings"] = [warning[:_WARNING_CHARACTERS] for warning in warnings]
    return _answer(response)


def refuse(uid: str, message: str) -> bytes:
    """Return a refusal; kube-apiserver puts the webhook's name before the message."""
    status = {"status": "Failure", "code": 422, "reason": "Invalid", "message": message}
    return _answer({"uid": uid, "allowed": False, "status": status})


def pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def labels_patch(obj: Mapping[str, Any], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON patch that adds labels to an object, which may have none yet."""
    if not labels:
        return []
    if not (obj.get("metadata") or {}).get("labels"):
        return [{"op": "add", "path": pointer("metadata", "labels"), "value": dict(labels)}]
    return [
        {"op": "add", "path": pointer("metadata", "labels", key), "value": value}
        for key, value in labels.items()
    ]


def changes_patch(obj: Mapping[str, Any], changes: Mapping[tuple[str, ...], object]) -> list[dict[str, Any]]:
    """Return the JSON patch that puts values at these paths, each whole; what stands there already is kept.

    The objects on the way are there: they are `metadata`, `spec`, or what the API server fills in.
    """
    patch = []
    for path, value in changes.items():
        found: Any = obj
        for part in path:
            found = (found or {}).get(part)
        if found != value:
            # To add a field that is there replaces it.
            patch.append({"op": "add", "path": pointer(*path), "value": value})
    return patch


def _answer(response: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": "AdmissionReview", "response": response})


_REVIEW = msgspec.json.Decoder(_Review)
