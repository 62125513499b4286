"""The encoding of reservations and log entries as bytes.

A reservation is one readable line, for the Lua scripts and for use with redis-cli, followed by its fields in
MessagePack, which stores the bytes of the write unchanged:

    1 <fence> <request id>\n<MessagePack map>

The first number is that of the format. A reader refuses a format that it does not know; fields that a later
version adds to the map are skipped by an earlier one.
"""

from __future__ import annotations

import msgspec

from queues.reservations.reservations import LoggedDecision, QuotaReservation

FORMAT = b"1"
EXPECTED = "a quota reservation in format 1"

_ENCODER = msgspec.msgpack.Encoder()
_RESERVATION = msgspec.msgpack.Decoder(QuotaReservation)
_ENTRY = msgspec.json.Decoder(LoggedDecision)


def encode(reservation: QuotaReservation) -> bytes:
    """Return a reservation as the hash stores it."""
    head = f"{FORMAT.decode()} {reservation.fence} {reservation.request_id}\n"
    return head.encode() + _ENCODER.encode(reservation)


def decode(value: bytes) -> QuotaReservation:
    """Return the decoded reservation. Raises ValueError for anything that `encode` did not make."""
    head, _, body = value.partition(b"\n")
    if head.split(b" ", 1)[0] != FORMAT:
        raise ValueError(f"{head[:40]!r} begins no reservation in format {FORMAT.decode()}")
    return _RESERVATION.decode(body)  # msgspec's errors are ValueErrors


def encode_entry(entry: LoggedDecision) -> bytes:
    """Return a log entry as JSON, which `redis-cli XREVRANGE` shows in readable form."""
    return msgspec.json.encode(entry)


def decode_entry(value: bytes) -> LoggedDecision:
    """Return the decoded log entry. Raises ValueError for anything else."""
    return _ENTRY.decode(value)
