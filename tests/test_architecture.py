"""The rules of the house in plain ast: imports point one way, and the core touches nothing outside itself.

Which folders are shells and what they alone may import is said once, in the contracts of pyproject.toml. Here
the same holds without import-linter, and with what an import cannot show: a clock read through datetime,
something awaited, a file opened.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
_OUTSIDE = next(
    contract for contract in _CONTRACTS if contract["name"] == "Only the shells touch the outside"
)

# Folders, and single modules.
_NAMES = [entry.split(" ")[0].replace(".", "/") for entry in _OUTSIDE["ignore_imports"]]
SHELLS = tuple(name[:-3] if name.endswith("/**") else f"{name}.py" for name in _NAMES)
FORBIDDEN_IMPORTS = {*_OUTSIDE["forbidden_modules"], "importlib", "multiprocessing", "secrets", "ssl"}
FORBIDDEN_CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
CLOCK_READS = {f"{owner}.{read}" for owner in ("date", "datetime") for read in ("now", "today", "utcnow")}
LAYERS = ("api", "queues", "admission")  # each may import itself and those before it


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module  # a relative import stays in its package, and so in its layer


def faults(source: str) -> Iterator[str]:
    """Yield what a module of the core does that only a shell may do."""
    tree = ast.parse(source)
    yield from (f"imports {name}" for name in imports(tree) if name.split(".")[0] in FORBIDDEN_IMPORTS)
    for node in ast.walk(tree):
        match node:
            case ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield "awaits"
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield f"calls {name}"
            case ast.Attribute() if ".".join(ast.unparse(node).split(".")[-2:]) in CLOCK_READS:
                yield f"reads the clock by {ast.unparse(node)}"


def is_core(path: Path) -> bool:
    return not any(path.is_relative_to(ROOT / shell) for shell in SHELLS)


MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def test_the_core_touches_nothing_outside_itself() -> None:
    found = [
        f"{path.relative_to(ROOT)} {fault}"
        for path in filter(is_core, MODULES)
        for fault in faults(path.read_text())
    ]
    assert found == []


def test_imports_point_from_admission_to_queues_to_api_only() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in MODULES
        for name in imports(ast.parse(path.read_text()))
        if name.split(".")[0] in LAYERS[LAYERS.index(path.relative_to(ROOT).parts[0]) + 1 :]
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("import redis", "imports redis", id="a store"),
        pytest.param("from asyncio import Queue", "imports asyncio", id="a part of asyncio"),
        pytest.param("import os.path", "imports os.path", id="a part of os"),
        pytest.param("def f():\n    import random", "imports random", id="an import in a function"),
        pytest.param("async def f(g):\n    await g()", "awaits", id="an await"),
        pytest.param("async def f(g):\n    async with g:\n        pass", "awaits", id="an async with"),
        pytest.param("now = datetime.now(UTC)", "reads the clock by datetime.now", id="the clock"),
        pytest.param(
            "import datetime as dt\nnow = dt.datetime.utcnow()",
            "reads the clock by dt.datetime.utcnow",
            id="the clock through a renamed module",
        ),
        pytest.param("print('x')", "calls print", id="a print"),
    ],
)
def test_a_planted_violation_is_found(source: str, want: str) -> None:
    assert list(faults(source)) == [want]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "from datetime import UTC, datetime\ndatetime.fromtimestamp(at, UTC)", id="a given time"
        ),
        pytest.param("class Store:\n    async def commit(self): ...", id="the signature of a waiter"),
        pytest.param("from queues.store_names import x", id="a name that only begins like a shell's"),
    ],
)
def test_what_the_core_may_do_is_no_violation(source: str) -> None:
    assert list(faults(source)) == []
