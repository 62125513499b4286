"""The wire format of protobuf: numbered fields, whose meaning the reader of a message knows.

Only what a reader of a few messages needs. Groups, which protobuf dropped, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field. Raises ValueError, or IndexError if the data is truncated."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case kind if kind == _VARINT:
                value, at = _varint(data, at)
                yield tag >> 3, value
                continue
            case kind if kind == _BYTES:
                size, at = _varint(data, at)
            case kind if kind == _FIXED_64:
                size = 8
            case kind if kind == _FIXED_32:
                size = 4
            case kind:
                raise ValueError(f"wire type {kind} is not known")
        if at + size > len(data):
            raise ValueError("the data is cut off")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than 64 bits")
