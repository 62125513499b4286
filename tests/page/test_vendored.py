"""Browser code of npm packages is as it was published, with its licence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import vendored

IDS = [folder.parent.name for folder in vendored.FOLDERS]


@pytest.mark.parametrize("folder", vendored.FOLDERS, ids=IDS)
def test_each_vendored_file_is_the_published_one(folder: Path) -> None:
    assert list(vendored.differences(folder)) == []


@pytest.mark.parametrize("folder", vendored.FOLDERS, ids=IDS)
def test_each_package_has_its_licence_and_the_hash_of_its_tarball(folder: Path) -> None:
    for one in vendored.packages(folder):
        assert any(name.endswith(".LICENSE") for name in one["files"]), one["name"]
        assert one["integrity"].startswith("sha512-"), one["name"]


def test_a_changed_a_missing_and_an_unknown_file_are_named(tmp_path: Path) -> None:
    for path in vendored.FOLDERS[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "htmx.min.js").write_text("changed")
    (tmp_path / "sse.min.js").unlink()
    (tmp_path / "new.js").write_text("")

    assert list(vendored.differences(tmp_path)) == [
        "htmx.min.js is not the file that its package has",
        "new.js is of no package in packages.json",
        "sse.min.js is missing",
    ]
