"""Signatures of stored values, so that what another program writes into Redis is recognised and ignored.

A stored value is followed by a space and 32 hexadecimal digits: 128 bits of HMAC-SHA256 over the place where
it is stored (key and field) and its bytes. The key is derived from the installation's signing key and the
identity of the cluster:

    signing key ─ HMAC("berth-store", cluster) ─▶ key ─ HMAC(place, value) ─▶ signature

A value that was copied to another field, another shard or another cluster is therefore not signed. A value
that was signed here and is put back later is: who can write to Redis can still delete values and restore old
ones, which the plan's versions, the fence and the checks of a takeover have to bear.

The signature stands at the end, so that scripts read the beginning of a value as before and redis-cli shows
it. Scripts have no key and check nothing; every value is checked where it is read.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

# A signing key of 32 random bytes, as text.
KEY_BYTES = 32
# Shorter keys can be found by trying.
LEAST_KEY_LENGTH = 32

# What is expected of a stored value, for messages.
SIGNED = "a value signed with this installation's key"

_DIGITS = 32
_SUFFIX = re.compile(rb" [0-9a-f]{%d}\Z" % _DIGITS)
_SUFFIX_LENGTH = _DIGITS + 1


class NotSigned(ValueError):
    """A value carries no signature of this installation at this place."""


class BadSigningKey(ValueError):
    """A file holds no signing key. The message names the file and what is expected."""


class Seal:
    """Puts signatures on values and takes them off. `place` is the Redis key and field of the value.

    Signs with the first of several keys and accepts all of them, so that keys can be replaced. Without a key
    it signs nothing and checks nothing: it reads signed and unsigned values alike.
    """

    def __init__(self, keys: Sequence[str] = (), *, cluster: str = "") -> None:
        """`cluster` identifies the cluster; values of another one are not accepted."""
        purpose = b"berth-store\0" + cluster.encode()
        self._keys = [hmac.digest(key.encode(), purpose, "sha256") for key in keys]

    @property
    def is_signing(self) -> bool:
        """Whether there is a key."""
        return bool(self._keys)

    def close(self, place: str, value: bytes) -> bytes:
        """Return the value as it is stored."""
        if not self._keys:
            return value
        return value + b" " + _signature(self._keys[0], place, value)

    def open(self, place: str, stored: bytes) -> bytes:
        """Return the value without its signature. Raises NotSigned for any but a valid one."""
        has_signature = _SUFFIX.search(stored) is not None
        value, given = stored[:-_SUFFIX_LENGTH], stored[-_DIGITS:]
        if not self._keys:
            return value if has_signature else stored
        if not has_signature or not any(
            hmac.compare_digest(given, _signature(key, place, value)) for key in self._keys
        ):
            raise NotSigned(f"{place} is not signed with this installation's key")
        return value

    def is_outdated(self, place: str, stored: bytes) -> bool:
        """Return whether a value that `open` accepts would be signed with another key now."""
        return bool(self._keys) and stored != self.close(place, self.open(place, stored))


def new_key() -> str:
    """Return a new random signing key."""
    return secrets.token_hex(KEY_BYTES)


def read_keys(path: str | Path) -> tuple[str, ...]:
    """Return the keys of a file: one on each line, the one that signs first. Raises BadSigningKey."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise BadSigningKey(f"the signing key {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSigningKey(f"the signing key {path} is not ASCII: write it as hexadecimal digits") from error
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    # The text itself is secret, so only the number of the line is named.
    short = [number for number, key in enumerate(keys, start=1) if len(key) < LEAST_KEY_LENGTH]
    if not keys or short:
        what = f"key {short[0]} of {path} is too short" if short else f"{path} holds no signing key"
        raise BadSigningKey(
            f"{what}: expected at least {LEAST_KEY_LENGTH} characters a line, as of `openssl rand -hex 32`"
        )
    return keys


def _signature(key: bytes, place: str, value: bytes) -> bytes:
    # The length of the place comes first: otherwise its end and the beginning of the value could be swapped.
    name = place.encode(errors="surrogateescape")
    message = b"%d %s%s" % (len(name), name, value)
    return hmac.digest(key, message, "sha256").hex()[:_DIGITS].encode()
