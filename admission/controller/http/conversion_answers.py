"""The answers to ConversionReviews, as a pure function of the review.

kube-apiserver asks whenever a client reads or writes an object of Kueue in v1beta1, and for its own cache of
that version whenever such an object changes. An answer follows from the object alone, so every replica gives
it, ready or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api.definitions.conversion import NEW_VERSION, OLD_VERSION, Object, convert
from api.definitions.older_form import to_older
from api.wire.conversion_review import ConversionRequest, converted, failed, read_conversion

# A list of domains takes many times what its slices take. More than this would be too much for the memory of
# a small controller.
MOST_ANSWER_BYTES = 64 << 20

_CONVERSIONS: Mapping[str, Callable[[Object], Object]] = {NEW_VERSION: convert, OLD_VERSION: to_older}


class _NotConverted(Exception):
    """Why no object of a review is converted, as a sentence."""


def answer_conversion(body: bytes | bytearray) -> bytes:
    """Return the answer to a review. Raises ValueError if the body is no ConversionReview."""
    request = read_conversion(body)
    try:
        return converted(request.uid, _objects(request))
    except _NotConverted as error:
        return failed(request.uid, str(error))


def _objects(request: ConversionRequest) -> list[bytes]:
    wanted = request.desired_api_version
    change = _CONVERSIONS.get(wanted)
    if change is None:
        raise _NotConverted(f"Berth converts to {OLD_VERSION} and {NEW_VERSION}, not to {wanted[:253]!r}")
    objects: list[bytes] = []
    size = 0
    for number, raw in enumerate(request.objects):
        obj = _read(raw, f"objects[{number}]")
        objects.append(msgspec.json.encode(change(obj)))
        size += len(objects[-1])
        if size > MOST_ANSWER_BYTES:
            most = MOST_ANSWER_BYTES >> 20
            raise _NotConverted(f"the objects take more than {most} MiB in {wanted}; list fewer at a time")
    return objects


def _read(raw: msgspec.Raw, place: str) -> dict[str, Any]:
    try:
        obj = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _NotConverted(f"{place} cannot be read: {error}") from error
    if not isinstance(obj, dict):
        raise _NotConverted(f"{place} is no object but {type(obj).__name__}")
    # As text: a client may give a list, which is no key.
    if (version := str(obj.get("apiVersion"))) not in _CONVERSIONS:
        said = version[:253]
        raise _NotConverted(f"{place} has apiVersion {said!r}, not {OLD_VERSION} or {NEW_VERSION}")
    return obj
