"""The errors that Redis and its client report, translated into errors of Berth with one sentence and a fix.

Exceptions of the client library do not leave this package. No answer, and passing states (loading, failing
over), are StoreUnreachable, because they may end by themselves. Everything else is StoreRefused: it lasts
until it is fixed.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import redis
from redis.asyncio.sentinel import MasterNotFoundError

from queues.reservations.reservations import ReservationError, StoreRefused, StoreUnreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLocation:
    """The store's location for messages: address without password; for an embedded one its directory."""

    address: str
    directory: str | None = None

    def __str__(self) -> str:
        if self.directory is not None:
            return f"the embedded Redis in {self.directory}"
        return f"Redis at {self.address}"

    @property
    def disk_remedy(self) -> str:
        """What to do when the disk is full."""
        if self.directory is not None:
            return f"free space on the disk of {self.directory}, or give the store another directory"
        return "free space on the disk of its machine"


# The first word of Redis's answer and the message for it, with {place}, {text}
# (the answer) and {disk_remedy}.
_PASSING = {
    "LOADING": "{place} is still loading its data; it will serve when that is done",
    "BUSY": "{place} is blocked by a script of another client: `redis-cli SCRIPT KILL` ends it",
    "MASTERDOWN": "{place} is a replica that has lost its primary; give the URL of the primary",
    "CLUSTERDOWN": "{place} is a node of a Redis Cluster that is down ({text})",
    "TRYAGAIN": "{place} is a node of a Redis Cluster that is moving these keys",
}
_CREDENTIALS = (
    "{place} does not accept the credentials ({text}): "
    "correct user and password in its URL, redis://USER:PASSWORD@HOST:PORT, or in --redis-password-file"
)
_REFUSING = {
    "WRONGPASS": _CREDENTIALS,
    "NOAUTH": _CREDENTIALS,
    "NOPERM": (
        "{place} does not let this user do what Berth needs ({text}): "
        "grant it `~berth:*` and the commands of deploy/redis.yaml"
    ),
    "READONLY": "{place} is a read-only replica: give the URL of its primary",
    "OOM": "{place} has used up its memory: raise its maxmemory, or remove what others keep there",
    "MISCONF": "{place} cannot save its data ({text}): {disk_remedy}",
    "DENIED": "{place} accepts only connections from its own machine (protected mode): set a password there",
    "MOVED": "{place} is a node of a Redis Cluster without this shard's keys: give the URL of {moved_to}",
    "ASK": "{place} is a node of a Redis Cluster without this shard's keys: give the URL of {moved_to}",
}


def to_reservation_error(error: Exception, place: StoreLocation) -> ReservationError:
    """Return the error of Berth for `error`, an exception of the Redis library."""
    # TLS first, because the library wraps TLS errors as lost connections, and the message would then say that
    # the server is down.
    if (tls := _find_cause(error, ssl.SSLError)) is not None:
        return _tls_error(tls, place)
    if isinstance(error, MasterNotFoundError):
        return _no_primary(error, place)
    text = str(error).strip().rstrip(".")
    # For some answers the library uses a class and keeps their first word in `status_code`.
    word = getattr(error, "status_code", None) or text.partition(" ")[0]
    # Refusals before passing states, because a wrong password also closes the connection.
    sentence = _REFUSING.get(word) or (_CREDENTIALS if _is_about_credentials(error) else None)
    if sentence is not None:
        return StoreRefused(_fill(sentence, text.removeprefix(word).strip(), place))
    if word in _PASSING:
        return StoreUnreachable(_fill(_PASSING[word], text.removeprefix(word).strip(), place))
    if isinstance(error, redis.InvalidResponse):
        return StoreRefused(f"what answers at {place.address} is not Redis: check host and port")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return unreachable(place, text)
    return StoreRefused(f"{place} does not serve Berth: {text}")


def _no_primary(error: MasterNotFoundError, place: StoreLocation) -> ReservationError:
    # The library puts what each Sentinel answered into one text, with all options of the connections.
    if "AuthenticationError" in str(error):
        return StoreRefused(
            f"a Sentinel of {place} does not accept the password: correct --redis-sentinel-password-file"
        )
    return unreachable(place, "none of its Sentinels names a primary")


def unreachable(place: StoreLocation, why: str) -> StoreUnreachable:
    """Return the error for a store that did not answer."""
    if place.directory is not None:
        # Its address is a private socket, and the child process is restarted when it ends.
        remedy = "it is started again by itself; if it stays away, see what it says in this log"
        return StoreUnreachable(f"{place} does not answer ({why}): {remedy}")
    remedy = "start it there, or correct its URL"
    if place.address.startswith("rediss://"):
        remedy += "; if it speaks no TLS, begin its URL with redis://"
    elif "Connection closed by server" in why and place.address.startswith("redis://"):
        remedy += "; if it expects TLS, begin its URL with rediss://"
    return StoreUnreachable(f"{place} does not answer ({why}): {remedy}")


def without_password(url: str) -> str:
    """Return a store's URL with its password masked, even where the URL is malformed."""
    masked = re.sub(r"//(?P<user>[^:@/]*):.*@", r"//\g<user>:***@", url)
    # Options in the query may also be passwords.
    return re.sub(r"(?P<name>[?&]\w*password)=[^&]*", r"\g<name>=***", masked)


def _is_about_credentials(error: Exception) -> bool:
    about = (redis.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError)
    return isinstance(error, about)


def _fill(sentence: str, text: str, place: StoreLocation) -> str:
    # "MOVED 3999 127.0.0.1:6381": the address is the last word.
    moved_to = text.rpartition(" ")[2]
    return sentence.format(place=place, text=text, disk_remedy=place.disk_remedy, moved_to=moved_to)


def _tls_error(error: ssl.SSLError, place: StoreLocation) -> StoreRefused:
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreRefused(
            f"{place} has a certificate that is not trusted ({error.verify_message}): "
            "name its CA with --redis-ca, or in the URL, rediss://…?ssl_ca_certs=FILE"
        )
    return StoreRefused(f"{place} does not speak TLS ({error.reason}): begin its URL with redis://")


def _find_cause(error: BaseException | None, kind: type[ssl.SSLError]) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, kind):
        # Both links, because the library raises some errors with `from` and some within an `except`.
        error = error.__cause__ or error.__context__
    return error
