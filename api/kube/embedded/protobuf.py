"""Decodes the protobuf form of the kinds that `kubectl create` creates without a file.

For `create namespace` and similar commands, kubectl sends protobuf regardless of what the server supports;
objects from files are sent as JSON or YAML. So only these kinds are decoded here, by the numbers of their
fields. Any other kind is rejected as an unsupported media type, and so is a non-empty field that is unknown:
`create job --from` copies a whole template, and a part of it would be a different Job.

    "k8s\\0"  Unknown { 1: TypeMeta { 1: apiVersion, 2: kind }, 2: the object's own message }

Source: Kubernetes, the generated.proto of apimachinery/runtime, core/v1, authentication/v1 and scheduling/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from api.kube.embedded.apply.errors import bad_request, unsupported_media_type
from api.parsing.protobuf_wire import read_fields

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_TEXT, _MAP, _NUMBER, _BOOL = "text", "map", "number", "bool"
_TEXTS, _BYTES_MAP, _QUANTITIES = "texts", "map of bytes", "map of quantities"

_Message = Mapping[int, tuple[str, Any]]
_METADATA: Final[_Message] = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    11: ("labels", _MAP),
    12: ("annotations", _MAP),
}
_QUANTITY: Final[_Message] = {1: ("text", _TEXT)}
_CONTAINER: Final[_Message] = {
    1: ("name", _TEXT),
    2: ("image", _TEXT),
    3: ("command", _TEXTS),
    4: ("args", _TEXTS),
    7: ("env", [{1: ("name", _TEXT), 2: ("value", _TEXT)}]),
    8: ("resources", {1: ("limits", _QUANTITIES), 2: ("requests", _QUANTITIES)}),
    14: ("imagePullPolicy", _TEXT),
}
_POD_SPEC: Final[_Message] = {
    2: ("containers", [_CONTAINER]),
    3: ("restartPolicy", _TEXT),
    4: ("terminationGracePeriodSeconds", _NUMBER),
    7: ("nodeSelector", _MAP),
    20: ("initContainers", [_CONTAINER]),
}
_JOB_SPEC: Final[_Message] = {
    1: ("parallelism", _NUMBER),
    2: ("completions", _NUMBER),
    3: ("activeDeadlineSeconds", _NUMBER),
    6: ("template", {1: ("metadata", _METADATA), 2: ("spec", _POD_SPEC)}),
    7: ("backoffLimit", _NUMBER),
    8: ("ttlSecondsAfterFinished", _NUMBER),
    10: ("suspend", _BOOL),
}
_UNKNOWN: Final[_Message] = {1: ("type", {1: ("apiVersion", _TEXT), 2: ("kind", _TEXT)})}
_KINDS: Final[Mapping[tuple[str, str], _Message]] = {
    ("v1", "Namespace"): {1: ("metadata", _METADATA)},
    ("v1", "ServiceAccount"): {1: ("metadata", _METADATA)},
    ("v1", "ConfigMap"): {1: ("metadata", _METADATA), 2: ("data", _MAP)},
    ("v1", "Secret"): {
        1: ("metadata", _METADATA),
        2: ("data", _BYTES_MAP),
        3: ("type", _TEXT),
        4: ("stringData", _MAP),
    },
    ("v1", "ResourceQuota"): {
        1: ("metadata", _METADATA),
        2: ("spec", {1: ("hard", _QUANTITIES), 2: ("scopes", _TEXTS)}),
    },
    ("batch/v1", "Job"): {1: ("metadata", _METADATA), 2: ("spec", _JOB_SPEC)},
    # `kubectl create token`.
    ("authentication.k8s.io/v1", "TokenRequest"): {
        1: ("metadata", _METADATA),
        2: (
            "spec",
            {
                1: ("audiences", _TEXTS),
                3: (
                    "boundObjectRef",
                    {1: ("kind", _TEXT), 2: ("apiVersion", _TEXT), 3: ("name", _TEXT), 4: ("uid", _TEXT)},
                ),
                4: ("expirationSeconds", _NUMBER),
            },
        ),
    },
    ("scheduling.k8s.io/v1", "PriorityClass"): {
        1: ("metadata", _METADATA),
        2: ("value", _NUMBER),
        3: ("globalDefault", _BOOL),
        4: ("description", _TEXT),
        5: ("preemptionPolicy", _TEXT),
    },
}


def read_protobuf(body: bytes) -> dict[str, Any]:
    """Return the object in its JSON form. Raises ApiError (400, 415)."""
    # The first four bytes distinguish it from any JSON, whatever the content type is.
    if not body.startswith(_MAGIC):
        raise bad_request("the object provided is unrecognized: it is no protobuf of Kubernetes")
    try:
        envelope = body[len(_MAGIC) :]
        head = _read(envelope, _UNKNOWN, is_partial=True).get("type", {})
        message = _KINDS.get((head.get("apiVersion", ""), head.get("kind", "")))
        if message is None:
            raise unsupported_media_type(("application/json", "application/yaml"))
        raw = next((value for number, value in read_fields(envelope) if number == 2), b"")
        return {**head, **_read(_as_bytes(raw), message)}
    except (ValueError, IndexError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def _read(data: bytes, message: _Message, *, is_partial: bool = False) -> dict[str, Any]:
    """Return the fields of a message by name; with `is_partial`, unknown fields are ignored."""
    found: dict[str, Any] = {}
    for number, value in read_fields(data):
        if number not in message:
            if not is_partial and not _is_blank(value):
                raise unsupported_media_type(("application/json", "application/yaml"))
            continue
        name, form = message[number]
        if form in (_MAP, _BYTES_MAP, _QUANTITIES):
            key, of_key = _entry(_as_bytes(value), str(form))
            found.setdefault(name, {})[key] = of_key
        elif form is _TEXTS:
            found.setdefault(name, []).append(_value(value, _TEXT))
        elif isinstance(form, list):
            found.setdefault(name, []).append(_value(value, form[0]))
        # Go also writes unset strings, as empty ones; JSON omits them.
        elif (read := _value(value, form)) not in ("", {}):
            found[name] = read
    return found


def _entry(data: bytes, form: str) -> tuple[str, str]:
    """Return the key and value of one entry of a map, in their JSON form."""
    parts = dict(read_fields(data))
    key, value = _as_bytes(parts.get(1, b"")).decode(), _as_bytes(parts.get(2, b""))
    if form == _BYTES_MAP:
        return key, base64.b64encode(value).decode()
    return key, _read(value, _QUANTITY).get("text", "") if form == _QUANTITIES else value.decode()


def _is_blank(value: int | bytes) -> bool:
    """Return whether a field is empty: 0, or a message of empty fields, which Go writes for unset fields."""
    if isinstance(value, int):
        return value == 0
    try:
        return all(_is_blank(part) for _, part in read_fields(value))
    except (ValueError, IndexError):
        return False


def _value(value: int | bytes, form: object) -> Any:
    if isinstance(value, int):
        # A negative number is encoded as its 64-bit two's complement.
        return bool(value) if form is _BOOL else value - (value >> 63 << 64)
    if isinstance(form, Mapping):
        return _read(value, form)
    if form is not _TEXT:
        raise ValueError("found bytes where a number is expected")
    return value.decode()


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("found a number where a message is expected")
    return value
