"""Flags of commands that use a Redis: how it is reached, and the key that signs what is stored there."""

from __future__ import annotations

import argparse
from pathlib import Path

from admission.cli.common.errors import WrongUsageError
from queues.store.access import StoreAccess, read_password
from queues.store.seal import BadSigningKey, read_keys

_TLS_FILES = ("redis_ca", "redis_certificate", "redis_key")


def add_store_access(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--redis-password-file",
        metavar="FILE",
        help="password of the user in the URL, or of the default user",
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
    given = ("redis_password_file", *_TLS_FILES, "store_key")
    for name in given if arguments.redis is None else ():
        if getattr(arguments, name) is not None:
            raise WrongUsageError(f"{_flag(name)} is for the Redis of --redis, and there is none")
    if (arguments.redis_certificate is None) != (arguments.redis_key is None):
        raise WrongUsageError("--redis-certificate and --redis-key go together; give both, or neither")
    if arguments.redis_password_file is not None:
        try:
            read_password(arguments.redis_password_file)
        except ValueError as error:
            raise WrongUsageError(f"--redis-password-file: {error}") from error
    for name in _TLS_FILES:
        path = getattr(arguments, name)
        if path is not None and not Path(path).is_file():
            raise WrongUsageError(f"{_flag(name)}: {path} is not a file")
    return StoreAccess(
        password_file=arguments.redis_password_file,
        ca=arguments.redis_ca,
        certificate=arguments.redis_certificate,
        key=arguments.redis_key,
    )


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
