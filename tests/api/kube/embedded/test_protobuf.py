"""The protobuf form of the objects that kubectl creates without a file."""

from __future__ import annotations

import pytest

from api.kube.embedded.apply.errors import ApiError
from api.kube.embedded.protobuf import read_protobuf

TYPE = b"\n\x0f\n\x02v1\x12\tNamespace"
# As kubectl 1.32 sends it: unset strings are present, but empty.
NAMESPACE = (
    b"k8s\x00"
    + TYPE
    + b'\x12\x1e\n\x16\n\x06doomed\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
    + b'\x12\x00\x1a\x02\n\x00\x1a\x00"\x00'
)


def test_a_namespace_is_read_without_what_is_not_set() -> None:
    want = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}}

    assert read_protobuf(NAMESPACE) == want


def field(number: int, value: bytes | int) -> bytes:
    """Return one field of a message: bytes, or a number below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def test_a_request_for_the_token_of_a_pod_is_read() -> None:
    pod = field(1, b"Pod") + field(2, b"v1") + field(3, b"train-x") + field(4, b"u-1")
    spec = field(1, b"berth.dev") + field(3, pod) + field(4, 100)
    # Unset fields of metadata and status are present, but empty.
    token = field(1, field(1, b"")) + field(2, spec) + field(3, field(1, b"") + field(2, b""))
    kind = field(1, b"authentication.k8s.io/v1") + field(2, b"TokenRequest")

    read = read_protobuf(b"k8s\x00" + field(1, kind) + field(2, token))

    reference = {"kind": "Pod", "apiVersion": "v1", "name": "train-x", "uid": "u-1"}
    assert read["spec"] == {
        "audiences": ["berth.dev"],
        "boundObjectRef": reference,
        "expirationSeconds": 100,
    }


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b"{}", 400, id="JSON under the wrong name"),
        pytest.param(NAMESPACE[:30], 400, id="a body that is cut off"),
        pytest.param(b"k8s\x00" + b"\xff" * 12, 400, id="a number without end"),
        pytest.param(b"k8s\x00\x0b", 400, id="a wire type that is not known"),
        pytest.param(b"k8s\x00" + TYPE + b"\x10\x05", 400, id="a number for an object"),
        pytest.param(b"k8s\x00", 415, id="no kind"),
        pytest.param(
            b"k8s\x00" + TYPE + b"\x12\x04\n\x00\x48\x05",
            415,
            id="a field that says something and is not known",
        ),
        pytest.param(NAMESPACE.replace(b"\tNamespace", b"\tLimitZone"), 415, id="a kind that is not read"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, want: int) -> None:
    with pytest.raises(ApiError) as refused:
        read_protobuf(body)

    assert refused.value.code == want
