"""Signatures of stored values: what is accepted, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from queues.store.seal import BadSigningKey, NotSigned, Seal, new_key, read_keys

OLD, NEW = "0" * 32, "1" * 32
PLACE = "berth:{default}:reservations team/w/uid-w"
SEALED = Seal([OLD], cluster="c").close(PLACE, b"value")


def test_the_signature_follows_the_value() -> None:
    assert SEALED.startswith(b"value ")
    assert len(SEALED) == len(b"value ") + 32


@pytest.mark.parametrize(
    "seal",
    [
        pytest.param(Seal([OLD], cluster="c"), id="the key that signed"),
        pytest.param(Seal([NEW, OLD], cluster="c"), id="the key that signed, after a newer one"),
        pytest.param(Seal(), id="without a key nothing is checked"),
    ],
)
def test_a_signed_value_is_read(seal: Seal) -> None:
    assert seal.open(PLACE, SEALED) == b"value"


@pytest.mark.parametrize(
    ("seal", "place", "stored"),
    [
        pytest.param(Seal([NEW], cluster="c"), PLACE, SEALED, id="another key"),
        pytest.param(Seal([OLD], cluster="d"), PLACE, SEALED, id="another cluster"),
        pytest.param(Seal([OLD], cluster="c"), f"{PLACE}2", SEALED, id="another place"),
        pytest.param(
            Seal([OLD], cluster="c"), PLACE[:-1], b"w" + SEALED, id="a part of the place moved over"
        ),
        pytest.param(Seal([OLD], cluster="c"), PLACE, b"x" + SEALED[1:], id="another value"),
        pytest.param(Seal([OLD], cluster="c"), PLACE, SEALED.upper(), id="digits in another case"),
        pytest.param(Seal([OLD], cluster="c"), PLACE, b"value", id="no signature"),
        pytest.param(Seal([OLD], cluster="c"), PLACE, b"", id="nothing"),
    ],
)
def test_a_value_that_was_not_signed_for_its_place_is_refused(seal: Seal, place: str, stored: bytes) -> None:
    with pytest.raises(NotSigned, match="is not signed with this installation's key"):
        seal.open(place, stored)


def test_a_value_is_signed_with_the_first_key() -> None:
    assert Seal([NEW, OLD], cluster="c").close(PLACE, b"value") == Seal([NEW], cluster="c").close(
        PLACE, b"value"
    )


def test_without_a_key_a_value_is_stored_as_it_is() -> None:
    assert Seal().close(PLACE, b"value") == b"value"
    assert Seal().open(PLACE, b"value") == b"value"


def test_keys_are_read_from_the_lines_of_a_file(tmp_path: Path) -> None:
    newer, older = new_key(), new_key()
    (tmp_path / "key").write_text(f"{newer}\n\n  {older}\n")

    assert read_keys(tmp_path / "key") == (newer, older)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"", "holds no signing key: expected at least 32 characters a line", id="an empty file"),
        pytest.param(b"0" * 32 + b"\nshort\n", "key 2 of .* is too short", id="a short key"),
        pytest.param(b"\xff" * 40, "is not ASCII: write it as hexadecimal digits", id="raw bytes"),
        pytest.param(None, "cannot be read: No such file", id="no file"),
    ],
)
def test_a_file_without_keys_is_refused_without_showing_it(
    tmp_path: Path, text: bytes | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "key").write_bytes(text)

    with pytest.raises(BadSigningKey, match=says) as refusal:
        read_keys(tmp_path / "key")

    assert "short\n" not in str(refusal.value)
