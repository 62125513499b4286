"""Flags of a Redis: what they name must be there, and go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from admission.cli.common.errors import WrongUsageError
from admission.cli.common.store_flags import add_store_access, to_store_access, to_store_keys
from queues.store.access import StoreAccess


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a password, a key and a certificate."""
    for name, text in (("password", "secret\n"), ("empty", "\n"), ("key", "0" * 64), ("pem", "pem")):
        (tmp_path / name).write_text(text)
    return tmp_path


def parse(folder: Path, flags: Sequence[str]) -> argparse.Namespace:
    """Return the parsed flags, TMP replaced by the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--redis")
    add_store_access(parser)
    return parser.parse_args([flag.replace("TMP", str(folder)) for flag in flags])


def test_files_are_passed_on_by_name(folder: Path) -> None:
    flags = ["--redis=r", "--redis-password-file=TMP/password", "--redis-ca=TMP/pem", "--store-key=TMP/key"]
    arguments = parse(folder, flags)

    access = StoreAccess(password_file=str(folder / "password"), ca=str(folder / "pem"))
    assert to_store_access(arguments) == access
    assert to_store_keys(arguments) == ("0" * 64,)


def test_nothing_is_needed(folder: Path) -> None:
    assert to_store_access(parse(folder, [])) == StoreAccess()
    assert to_store_keys(parse(folder, [])) == ()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param(
            ["--store-key=TMP/key"],
            "--store-key is for the Redis of --redis, and there is none",
            id="no Redis",
        ),
        pytest.param(
            ["--redis=r", "--redis-key=TMP/pem"],
            "--redis-certificate and --redis-key go together",
            id="a key alone",
        ),
        pytest.param(
            ["--redis=r", "--redis-ca=TMP/none"],
            "--redis-ca: TMP/none is not a file",
            id="a CA that is missing",
        ),
        pytest.param(
            ["--redis=r", "--redis-password-file=TMP/none"],
            "--redis-password-file: the password file TMP/none cannot be read",
            id="a password that is missing",
        ),
        pytest.param(
            ["--redis=r", "--redis-password-file=TMP/empty"],
            "--redis-password-file: the password file TMP/empty is empty",
            id="an empty password",
        ),
        pytest.param(
            ["--redis=r", "--store-key=TMP/password"],
            "--store-key: key 1 of TMP/password is too",
            id="a short key",
        ),
    ],
)
def test_flags_that_cannot_be_used_are_named(folder: Path, flags: Sequence[str], says: str) -> None:
    arguments = parse(folder, flags)

    with pytest.raises(WrongUsageError) as refusal:
        _ = to_store_access(arguments), to_store_keys(arguments)

    assert str(refusal.value).startswith(says.replace("TMP", str(folder)))
