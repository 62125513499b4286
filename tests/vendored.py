"""Browser code that is not ours: files of npm packages, as they were published.

Each folder of `FOLDERS` has a `packages.json`: package, version, the tarball's integrity as npm gives it,
and the SHA-256 of each file that was taken. `python -m tests.vendored` fetches the packages with npm,
verifies them, and writes files and hashes again; the test compares files and hashes without a network.
For another version: change it in `packages.json`, empty its `integrity`, and run the program.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "admission/controller/page/static/vendor", ROOT / "tests/page/vendor")
LIST = "packages.json"


class TamperedError(Exception):
    """A package or file is not the one that was taken; the message names it."""


def packages(folder: Path) -> list[dict[str, Any]]:
    """Return the packages of a folder: name, version, integrity, and files by their name here."""
    found: list[dict[str, Any]] = json.loads((folder / LIST).read_text())
    return found


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(content).hexdigest()


def differences(folder: Path) -> Iterator[str]:
    """Yield a sentence for each file that is missing, changed, or not of a package."""
    listed = {name: file["sha256"] for one in packages(folder) for name, file in one["files"].items()}
    present = {path.name for path in folder.iterdir() if path.name != LIST}
    for name in sorted(listed.keys() | present):
        if name not in present:
            yield f"{name} is missing"
        elif name not in listed:
            yield f"{name} is of no package in {LIST}"
        elif digest((folder / name).read_bytes()) != listed[name]:
            yield f"{name} is not the file that its package has"


def fetch(folder: Path) -> None:
    """Write the files of the folder's packages again, with their hashes. Raises TamperedError."""
    found = packages(folder)
    for one in found:
        with tempfile.TemporaryDirectory() as work:
            tarball = _packed(f"{one['name']}@{one['version']}", Path(work))
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
            if one["integrity"] not in ("", integrity):
                raise TamperedError(
                    f"{one['name']} {one['version']} is not the package that was taken before"
                )
            one["integrity"] = integrity
            with tarfile.open(tarball) as archive:
                for name, file in one["files"].items():
                    member = archive.extractfile(f"package/{file['from']}")
                    assert member is not None, f"{one['name']} has no file {file['from']}"
                    content = member.read()
                    (folder / name).write_bytes(content)
                    file["sha256"] = digest(content)
    (folder / LIST).write_text(json.dumps(found, indent=2) + "\n")


def _packed(package: str, work: Path) -> Path:
    subprocess.run(["npm", "pack", "--silent", package], cwd=work, check=True, stdout=subprocess.DEVNULL)
    (tarball,) = work.glob("*.tgz")
    return tarball


def main() -> int:
    """Fetch all packages again and return the exit code."""
    for folder in FOLDERS:
        try:
            fetch(folder)
        except TamperedError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
