"""Flags of commands that use a Redis: how it is reached, and the key that signs what is stored there."""

from __future__ import annotations

import argparse
from pathlib import Path

from admission.cli.common.errors import WrongUsageError
from queues.store.access import StoreAccess, read_password
from queues.store.replication import Replication
from queues.store.seal import BadSigningKey, read_keys

_PASSWORD_FILES = ("redis_password_file", "redis_sentinel_password_file")
_TLS_FILES = ("redis_ca", "redis_certificate", "redis_key")

# Far above any group of servers.
_MOST_REPLICAS = 100


def add_store_access(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--redis-password-file",
        metavar="FILE",
        help="password of the user in the URL, or of the default user",
    )
    parser.add_argument(
        "--redis-sentinel-password-file", metavar="FILE", help="password of the Sentinels' default user"
    )
    parser.add_argument("--redis-ca", metavar="FILE", help="PEM certificates that Redis' own is checked with")
    parser.add_argument("--redis-certificate", metavar="FILE", help="PEM certificate of this client")
    parser.add_argument("--redis-key", metavar="FILE", help="its key, PEM")
    parser.add_argument(
        "--store-key",
        metavar="FILE",
        help="key that signs what is stored: one a line, the first signs, all are accepted",
    )
    parser.add_argument(
        "--cluster-id",
        metavar="ID",
        help="identity of the cluster in signatures (default: uid of the namespace kube-system)",
    )


def to_store_access(arguments: argparse.Namespace) -> StoreAccess:
    """Return how Redis is reached. Raises WrongUsageError for files that cannot be used."""
    given = (*_PASSWORD_FILES, *_TLS_FILES, "store_key")
    for name in given if arguments.redis is None else ():
        if getattr(arguments, name) is not None:
            raise WrongUsageError(f"{_flag(name)} is for the Redis of --redis, and there is none")
    if (arguments.redis_certificate is None) != (arguments.redis_key is None):
        raise WrongUsageError("--redis-certificate and --redis-key go together; give both, or neither")
    for name in _PASSWORD_FILES:
        if (path := getattr(arguments, name)) is not None:
            try:
                read_password(path)
            except ValueError as error:
                raise WrongUsageError(f"{_flag(name)}: {error}") from error
    for name in _TLS_FILES:
        path = getattr(arguments, name)
        if path is not None and not Path(path).is_file():
            raise WrongUsageError(f"{_flag(name)}: {path} is not a file")
    return StoreAccess(
        password_file=arguments.redis_password_file,
        sentinel_password_file=arguments.redis_sentinel_password_file,
        ca=arguments.redis_ca,
        certificate=arguments.redis_certificate,
        key=arguments.redis_key,
    )


def add_replication(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say when a write counts."""
    parser.add_argument(
        "--redis-replicas",
        metavar="N",
        type=_replicas,
        default=0,
        help="replicas that must have a write before it counts (WAIT, default %(default)s)",
    )
    parser.add_argument(
        "--redis-on-disk",
        action="store_true",
        help="it must be on disk there and on the primary (WAITAOF, Redis 7.2 with appendonly)",
    )


def _replicas(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > _MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of replicas: expected 0 to {_MOST_REPLICAS}")
    return int(text)


def to_replication(arguments: argparse.Namespace) -> Replication:
    """Return what Redis must do with a write. Raises WrongUsageError without a Redis to do it."""
    replication = Replication(replicas=arguments.redis_replicas, on_disk=arguments.redis_on_disk)
    if replication and arguments.redis is None:
        flag = "--redis-on-disk" if replication.on_disk else "--redis-replicas"
        raise WrongUsageError(f"{flag} is for the Redis of --redis, and there is none")
    return replication


def to_store_keys(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the signing keys, () without any. Raises WrongUsageError."""
    if arguments.store_key is None:
        return ()
    try:
        return read_keys(arguments.store_key)
    except BadSigningKey as error:
        raise WrongUsageError(f"--store-key: {error}") from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
