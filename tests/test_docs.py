"""README, docs/ and examples/ are true: what they name exists, and what exists they name."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import COMMANDS
from admission.cli.common.errors import ExitCode
from api import reasons
from api.config.berth import Settings
from api.config.fields import Section
from api.config.loading import ACTED_UPON
from tests import cli_reference, policy_reference
from tests.integration.test_rights import RIGHTS
from tests.metrics import served_names

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
# The tables of docs/security.md that say what holds.
THREATS = ("Actors", "Failures", "Other guards")
_CODE = re.compile(r"`([^`\n]+)`")
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "README.md", *PAGES)}


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield every command line of the shell blocks: after a prompt in a console, each line elsewhere."""
    for language, block in re.findall(
        r"^```(console|sh|bash)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            if language != "console" or line.startswith("$ "):
                yield from _split_at_pipes(line.removeprefix("$ "))


def _split_at_pipes(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for is_pipe, words in groupby(lexer, lambda word: word == "|"):
        if not is_pipe:
            yield list(words)


BERTH_LINES = sorted(
    {" ".join(words) for text in TEXTS.values() for words in commands_of(text) if words[:1] == ["berth"]}
)


@pytest.mark.parametrize("line", BERTH_LINES)
def test_a_command_line_of_the_documentation_has_a_command_and_flags_that_exist(line: str) -> None:
    words = line.split()
    if words[1] == "COMMAND":
        return

    assert words[1] in COMMANDS
    flags = {word.split("=")[0] for word in words[2:] if re.match(r"--?[a-zA-Z]", word)}
    assert flags - cli_reference.flags_of(words[1]) == set()


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_files_and_targets_that_a_page_names_exist(page: str) -> None:
    words = {word for line in commands_of(TEXTS[page]) for word in line}
    files = {word for word in words if re.match(r"(examples|deploy)/", word)}
    targets = {line[1] for line in commands_of(TEXTS[page]) if line[:1] == ["make"] and len(line) > 1}
    makefile = (ROOT / "Makefile").read_text()

    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    base = (ROOT / page).parent

    assert [link for link in _links(TEXTS[page]) if not _leads_somewhere(base, page, link)] == []


def test_the_page_of_the_commands_is_what_the_parsers_say() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.render(), (
        "write it again: python -m tests.cli_reference"
    )


def test_the_page_of_policies_has_every_field() -> None:
    assert policy_reference.PAGE.read_text() == policy_reference.wanted(), (
        "write it again: python -m tests.policy_reference"
    )


def test_every_room_of_admission_is_listed_once_in_the_order_of_the_layers() -> None:
    section = ARCHITECTURE.split("### The rooms of `admission/`")[1].split("\n## ")[0]
    listed = [_CODE.findall(line)[0] for line in section.splitlines() if line.startswith("| `")]
    contract = next(one for one in _CONTRACTS if one.get("containers") == ["admission"])
    bottom_up = [layer.split(" | ") for layer in reversed(contract["layers"])]

    assert listed == [room for layer in bottom_up for room in layer]


def test_the_files_that_the_architecture_names_exist() -> None:
    named = {name for name in _CODE.findall(ARCHITECTURE) if re.fullmatch(r"[\w/]+(/|\.(py|lua))", name)}
    folders = (ROOT / name for name in ("admission", "api", "queues", "tests"))
    files = [path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")]
    there = {part for file in files for part in _ends_of(file)}

    assert [name for name in sorted(named) if name not in there] == []


ROOMS = [
    path.parent
    for layer in ("admission", "queues", "api")
    for path in sorted((ROOT / layer).rglob("__init__.py"))
    if "Modules, in reading order:" in path.read_text()
]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_the_modules_that_a_room_lists_exist(room: Path) -> None:
    block = (room / "__init__.py").read_text().split("Modules, in reading order:\n\n")[1].split("\n\n")[0]
    rows = [line.strip().split("  ")[0] for line in block.splitlines()]
    listed = [name for row in rows for name in row.split(", ")]

    missing = [name for name in listed if not ((room / f"{name}.py").exists() or (room / name).is_dir())]
    assert missing == []


def _ends_of(file: str) -> Iterator[str]:
    """Yield the ways to name a file or a folder above it: from any folder on."""
    parts = file.split("/")
    for begin in range(len(parts)):
        yield "/".join(parts[begin:])
        yield from ("/".join(parts[begin:end]) + "/" for end in range(begin + 1, len(parts)))


_DEFINED_TESTS = frozenset(
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE)
)


@pytest.mark.parametrize("page", [page for page, text in sorted(TEXTS.items()) if "`test_" in text])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXTS[page]))

    assert named - _DEFINED_TESTS == set()


def test_each_row_of_the_threat_model_names_a_test() -> None:
    page = TEXTS["docs/security.md"]
    tables = [page.partition(f"## {name}\n")[2].partition("\n## ")[0] for name in THREATS]
    rows = [line for table in tables for line in table.splitlines() if line.startswith("| ")]
    guards = [row for row in rows if "shown by" not in row]

    assert len(guards) > 80
    assert [row for row in guards if "`test_" not in row.rsplit(" | ", 1)[-1]] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    assert sorted(_pages_of(navigation)) == [page.name for page in PAGES]


def test_the_first_page_leads_every_reader_to_a_picture_and_to_all_pages() -> None:
    page = TEXTS["docs/index.md"]
    readers = re.findall(r"^## For (.*)", page, flags=re.MULTILINE)
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    assert [f"For {reader}" for reader in readers] == [name for entry in navigation[1:] for name in entry]
    for section in page.split("\n## ")[1:]:
        assert "![" in section
    linked = {link.split("#")[0] for link in _links(page)}
    assert {path.name for path in PAGES} - linked == {"index.md"}


def _pages_of(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the files of a navigation, those of its sections included."""
    for entry in entries:
        for found in entry.values():
            yield from [found] if isinstance(found, str) else _pages_of(found)


@pytest.mark.parametrize(
    "words",
    [
        reasons.PendingReason,
        reasons.EvictionReason,
        reasons.PreemptionReason,
        reasons.FinishedReason,
        reasons.RequeueReason,
        reasons.InactiveReason,
    ],
    ids=lambda words: words.__name__,
)
def test_every_reason_is_explained(words: Iterable[str]) -> None:
    page = TEXTS["docs/troubleshooting.md"]

    assert [str(word) for word in words if f"`{word}`" not in page] == []


def test_every_exit_code_is_explained() -> None:
    page = TEXTS["docs/troubleshooting.md"]

    assert [code for code in ExitCode if f"\n| {code.value} | " not in page] == []


def test_every_setting_with_an_effect_is_explained() -> None:
    page = TEXTS["docs/running.md"]
    ours = set(_settings(Settings, ""))
    theirs = {path for path in ACTED_UPON if not path.startswith("leaderElection.")}

    assert [path for path in sorted(ours | theirs) if f"`{path}`" not in page] == []


def test_every_metric_is_explained_and_none_of_ours_that_is_not_served() -> None:
    served = served_names()
    documented = set(re.findall(r"`(\w+_\w+)`", TEXTS["docs/metrics.md"]))

    assert served - documented == set()
    assert {name for name in documented - served if name.startswith("berth_")} == set()


def _links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


def _leads_somewhere(base: Path, page: str, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = base / file if file else ROOT / page
    if not anchor:
        return target.exists()
    return target.is_file() and anchor in _anchors(target.read_text())


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _settings(section: type[Section], path: str) -> Iterator[str]:
    """Yield the path of each setting, as it is written in the file."""
    for name, field in section.model_fields.items():
        written = f"{path}{field.alias or name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _settings(inner, f"{written}.")
        else:
            yield written


def test_the_rights_in_the_threat_model_are_those_that_a_cluster_answers() -> None:
    """`RIGHTS` is compared with the answers of kube-apiserver."""
    section = (ROOT / "docs" / "security.md").read_text().partition("## Rights")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "`" in line]
    shown = {row[0].strip("`"): " ".join(cell or "no" for cell in row[1:]) for row in rows if len(row) == 5}

    assert shown == RIGHTS


def test_the_description_of_the_package_needs_no_file_beside_it() -> None:
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["readme"]
    text = (ROOT / name).read_text()

    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [one for one in links if not one.startswith("https://")] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"berth-queue\[(\w+)\]", text)) <= {*extras}
