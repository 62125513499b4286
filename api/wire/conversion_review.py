"""ConversionReview (apiextensions.k8s.io/v1): requests of kube-apiserver to a webhook, and responses.

It sends objects of one kind, those of a list among them, and wants all of them in another version, in their
order. Each stays undecoded until its turn. Source: k8s.io/apiextensions-apiserver,
pkg/apis/apiextensions/v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.objects.common import Wire

_VERSION = "apiextensions.k8s.io/v1"


class ConversionRequest(Wire, frozen=True):
    """One request: the objects, and the apiVersion that each shall have."""

    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[msgspec.Raw, ...]


class _Review(Wire, frozen=True):
    request: ConversionRequest


_REVIEW = msgspec.json.Decoder(_Review)


def read_conversion(body: bytes | bytearray) -> ConversionRequest:
    """Return the request of a review. Raises ValueError if the body is not a ConversionReview."""
    try:
        return _REVIEW.decode(body).request
    # JSON that is nested too deeply is the client's fault, like any other malformed body.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is no ConversionReview of {_VERSION}: {error}") from error


def converted(uid: str, objects: Sequence[bytes]) -> bytes:
    """Return the response with the JSON of the converted objects."""
    raw = [msgspec.Raw(one) for one in objects]
    return _response({"uid": uid, "convertedObjects": raw, "result": {"status": "Success"}})


def failed(uid: str, message: str) -> bytes:
    """Return the response that no object is converted. kube-apiserver shows the message to the client."""
    return _response({"uid": uid, "result": {"status": "Failed", "message": message}})


def _response(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": "ConversionReview", "response": response})
