"""Which test shows which requirement or guard, and which break of the code turns it red.

Requirements are those of the source articles. Guards are what docs/security.md promises, each by the name of
its test.

    python -m tests.coverage_table                          the table, by the marks @pytest.mark.covers
    python -m tests.coverage_table --run                    try every break of tests/mutation/breaks.toml
    python -m tests.coverage_table --run --only 000_31,001_23
    python -m tests.coverage_table --guards [--run]         the same of guards, by tests/mutation/guards.toml

A break is tried in a copy of the code. The tests that name its requirement run there, except those on a real
control plane (`--real` adds them), until one fails. A break that none of them notices is listed with the
requirement: either the tests show something else, or the break changes nothing.

Exit codes: 0 every break that was tried was noticed; 1 some were not; 2 wrong usage, or a break that does not
match the code.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BREAKS = ROOT / "tests" / "mutation" / "breaks.toml"
GUARDS = ROOT / "tests" / "mutation" / "guards.toml"
SECURITY = ROOT / "docs" / "security.md"
_MARK = "pytest.mark.covers"
_TEST_NAME = re.compile(r"`(test_\w+)`")
# What tests read, beside the packages.
_COPIED = ("admission", "api", "queues", "bench", "tests", "deploy", "docs", "examples")
_SINGLE_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "requirements.lock")
_NO_TESTS = 5
_NOTICED, _UNNOTICED, _UNTRIED = "noticed", "NOT NOTICED", "needs --real"


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A change of one place of the code: `before`, which occurs once in `file`, becomes `after`."""

    requirement: str
    file: str
    before: str
    after: str


class BreakError(ValueError):
    """A break does not match the code; the message names it."""


def marked_tests(folder: Path = ROOT / "tests") -> dict[str, tuple[str, ...]]:
    """Return the tests that name each requirement, as pytest's node ids relative to the root."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for requirement in _named(node):
                    found.setdefault(requirement, []).append(
                        f"{path.relative_to(folder.parent)}::{node.name}"
                    )
    # A test may name a requirement in its decorator and again for one of its cases.
    return {requirement: tuple(dict.fromkeys(tests)) for requirement, tests in sorted(found.items())}


def guarding_tests(document: Path = SECURITY, folder: Path = ROOT / "tests") -> dict[str, tuple[str, ...]]:
    """Return the tests that a document names in its tables, as pytest's node ids relative to the root."""
    lines = (line for line in document.read_text().splitlines() if line.startswith("|"))
    names = dict.fromkeys(name for line in lines for name in _TEST_NAME.findall(line))
    found: dict[str, list[str]] = {name: [] for name in names}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in found:
                found[node.name].append(f"{path.relative_to(folder.parent)}::{node.name}")
    return {name: tuple(tests) for name, tests in found.items()}


def _named(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == _MARK:
                yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))


def read_breaks(path: Path = BREAKS) -> dict[str, Break]:
    """Return the break of each requirement. Raises BreakError for one that does not match the code."""
    table = tomllib.loads(path.read_text())
    found = {name: Break(requirement=name, **fields) for name, fields in table.items()}
    for one in found.values():
        count = (ROOT / one.file).read_text().count(one.before)
        if count != 1:
            raise BreakError(
                f"{one.requirement}: {one.before!r} occurs {count} times in {one.file}, not once"
            )
    return found


def lay_out(folder: Path) -> None:
    """Copy what the tests need."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _SINGLE_FILES:
        shutil.copy(ROOT / name, folder)


def try_break(one: Break, tests: Sequence[str], folder: Path, *, with_real: bool) -> str:
    """Return whether a test notices the break."""
    path = folder / one.file
    whole = path.read_text()
    path.write_text(whole.replace(one.before, one.after))
    try:
        done = _run(tests, folder, with_real=with_real)
    finally:
        path.write_text(whole)
    if done.returncode == _NO_TESTS:
        return _UNTRIED
    return _UNNOTICED if done.returncode == 0 else _NOTICED


def _run(tests: Sequence[str], folder: Path, *, with_real: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider"]
    command += [*tests] if with_real else ["-m", "not real", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def table(tests: Mapping[str, Sequence[str]], breaks: Mapping[str, Break]) -> Iterator[str]:
    """Yield the lines of the table, in Markdown."""
    yield "| requirement | tests | break |"
    yield "|---|---|---|"
    for requirement in sorted({*tests, *breaks}):
        names = "<br>".join(f"`{one}`" for one in tests.get(requirement, ())) or "none"
        one = breaks.get(requirement)
        shown = f"`{one.file}`: {_cell(one.before)} → {_cell(one.after)}" if one is not None else "none"
        yield f"| {requirement} | {names} | {shown} |"


def _cell(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|")
    return f"`{shown}`" if shown else "(removed)"


def run(tests: Mapping[str, Sequence[str]], chosen: Sequence[Break], *, with_real: bool) -> int:
    """Try the breaks and print what became of each. Return how many no test noticed."""
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="berth-breaks-") as name:
        lay_out(Path(name))
        for one in chosen:
            named = tests.get(one.requirement, ())
            result = try_break(one, named, Path(name), with_real=with_real) if named else _UNNOTICED
            results[one.requirement] = result
            print(f"{one.requirement} {result}", flush=True)
    counts = {word: list(results.values()).count(word) for word in (_NOTICED, _UNNOTICED, _UNTRIED)}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return counts[_UNNOTICED]


def main() -> int:
    """Print the table, or try the breaks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="try the breaks")
    parser.add_argument("--guards", action="store_true", help="of the guards in docs/security.md")
    parser.add_argument("--only", default="", help="comma list of requirements (default: all with a break)")
    parser.add_argument("--real", action="store_true", help="run tests on a real control plane as well")
    arguments = parser.parse_args()
    tests, path = (guarding_tests(), GUARDS) if arguments.guards else (marked_tests(), BREAKS)
    try:
        breaks = read_breaks(path)
    except BreakError as error:
        parser.error(str(error))
    if not arguments.run:
        print("\n".join(table(tests, breaks)))
        return 0
    wanted = arguments.only.split(",") if arguments.only else list(breaks)
    if unknown := [one for one in wanted if one not in breaks]:
        parser.error(f"--only {unknown[0]}: {path.relative_to(ROOT)} has no such break")
    return 1 if run(tests, [breaks[one] for one in wanted], with_real=arguments.real) else 0


if __name__ == "__main__":
    sys.exit(main())
