"""Reservations and log entries as bytes.

A reservation is one readable line, for the scripts and for people with redis-cli, and then its fields in
MessagePack, which holds the bytes of the write as they are:

    1 <fence> <request id>\n<MessagePack map>

The leading number is the format's. A reader refuses formats it does not know; fields that a later version
adds to the map are skipped by an earlier one.
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
    """Return a reservation as it stands in the hash."""
    head = f"{FORMAT.decode()} {reservation.fence} {reservation.request_id}\n"
    return head.encode() + _ENCODER.encode(reservation)


def decode(value: bytes) -> QuotaReservation:
    """Return the reservation. Raises ValueError for anything that `encode` did not make."""
    head, _, body = value.partition(b"\n")
    if head.split(b" ", 1)[0] != FORMAT:
        raise ValueError(f"{head[:40]!r} begins no reservation in format {FORMAT.decode()}")
    return _RESERVATION.decode(body)  # msgspec's errors are ValueErrors


def encode_entry(entry: LoggedDecision) -> bytes:
    """Return a log entry as JSON, which `redis-cli XREVRANGE` shows as it is."""
    return msgspec.json.encode(entry)


def decode_entry(value: bytes) -> LoggedDecision:
    """Return the log entry. Raises ValueError for anything else."""
    return _ENTRY.decode(value)
