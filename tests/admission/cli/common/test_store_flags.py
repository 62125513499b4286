"""Flags of a Redis: what they name must be there, and go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from admission.cli.common.errors import WrongUsageError
from admission.cli.common.store_flags import (
    add_replication,
    add_store_access,
    to_replication,
    to_store_access,
    to_store_keys,
)
from queues.store.access import StoreAccess
from queues.store.replication import Replication


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
    add_replication(parser)
    return parser.parse_args([flag.replace("TMP", str(folder)) for flag in flags])


def test_files_are_passed_on_by_name(folder: Path) -> None:
    flags = ["--redis=r", "--redis-password-file=TMP/password", "--redis-ca=TMP/pem", "--store-key=TMP/key"]
    arguments = parse(folder, flags)

    access = StoreAccess(password_file=str(folder / "password"), ca=str(folder / "pem"))
    assert to_store_access(arguments) == access
    assert to_store_keys(arguments) == ("0" * 64,)


@pytest.mark.parametrize(
    ("flags", "replication"),
    [
        pytest.param([], Replication(), id="nothing is waited for by default"),
        pytest.param(["--redis=r", "--redis-replicas=2"], Replication(replicas=2), id="two replicas"),
        pytest.param(["--redis=r", "--redis-on-disk"], Replication(on_disk=True), id="the disk"),
    ],
)
def test_when_a_write_counts(folder: Path, flags: Sequence[str], replication: Replication) -> None:
    assert to_replication(parse(folder, flags)) == replication


@pytest.mark.parametrize("flag", ["--redis-replicas=1", "--redis-on-disk"])
def test_replicas_are_those_of_a_redis(folder: Path, flag: str) -> None:
    with pytest.raises(WrongUsageError, match="is for the Redis of --redis, and there is none"):
        to_replication(parse(folder, [flag]))


@pytest.mark.parametrize("text", ["-1", "101", "x", "1.5", "²", ""])
def test_a_number_of_replicas_that_is_none(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(folder, ["--redis=r", f"--redis-replicas={text}"])

    assert "is no number of replicas: expected 0 to 100" in capsys.readouterr().err


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
