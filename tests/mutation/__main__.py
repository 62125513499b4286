"""Break the code of a folder in many small ways and list what its tests do not notice.

`make mutation FOLDER=queues/quota`, or `python -m tests.mutation queues/quota`. The library mutmut makes the
mutants, each the code with one small change, and runs the tests that reach the changed function until one
fails. A mutant that no test notices is a survivor: either a test is missing, or the code says more than is
needed, or the change cannot be observed. The last kind is listed in `equivalent.toml` with the reason, and
is counted apart.

mutmut works in `.mutation/`, so the code itself is never changed. The folder is kept until the next run,
because the commands that show or repeat a mutant read it.

Exit codes: 0 the mutants were tried, whether or not any survived; 1 the tests fail without a mutant, or
mutmut failed; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".mutation"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
_PACKAGES = ("admission", "queues", "api")
# What tests read beside the code.
_READ_BY_TESTS = ("deploy", "docs", "examples")
# Tests of a folder besides those of the same folder under tests/: quick ones that reach its code.
# Nearly all laws are left out, because each mutant would cost the examples of a law.
_MORE_TESTS: Mapping[str, Sequence[str]] = {
    "admission/flavors": ("tests/admission/scheduler", "tests/admission/calendar"),
    "admission/nomination": ("tests/admission/scheduler",),
    "admission/preemption": ("tests/admission/scheduler",),
    "admission/snapshot": (
        "tests/admission/scheduler",
        "tests/admission/preemption",
        # Takes a second.
        "tests/laws/test_hold_totals.py",
    ),
}
_STATUS = re.compile(r"^\s+(\S+__mutmut_\d+): (.+)$", re.MULTILINE)
# In the order in which they are reported; mutmut knows rarer ones, such as segfault, which are added.
_STATUSES = ("killed", "survived", "timeout", "no tests", "equivalent")
_NUMBER = re.compile(r"__mutmut_\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a mutant changes: the lines `before` and `after`, without indentation, in `function`."""

    function: str
    before: str
    after: str


class MutationError(Exception):
    """The mutants cannot be tried; the message is one sentence for the user."""


def find_tests(target: Path, chosen: Sequence[str]) -> list[str]:
    """Return the tests of a folder or module, as paths for pytest: those that were chosen, if any were.

    Otherwise the folder of the same name under tests/, and what `_MORE_TESTS` adds. Raises MutationError
    where the target is no code of Berth, or has no tests.
    """
    if target.parts[:1] not in [(name,) for name in _PACKAGES] or not (ROOT / target).exists():
        given = f"FOLDER={target}" if target.parts else "FOLDER="
        raise MutationError(f"{given} names no folder of admission, queues or api; try FOLDER=queues/quota")
    if chosen:
        return list(chosen)
    folder = target if (ROOT / target).is_dir() else target.parent
    mirror = [str("tests" / folder)] if ("tests" / folder).is_dir() else []
    found = [*mirror, *_MORE_TESTS.get(str(folder), ())]
    if not found:
        raise MutationError(f"no tests are known for {folder}; name them with TESTS='tests/...'")
    return found


def lay_out(target: Path, tests: Sequence[str]) -> None:
    """Prepare `WORK`: links to the code, and the settings of mutmut."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    for name in (*_PACKAGES, "tests", *_READ_BY_TESTS):
        (WORK / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "pyproject.toml", WORK)
    is_folder = (ROOT / target).is_dir()
    settings: Mapping[str, Sequence[str]] = {
        "source_paths": _PACKAGES,
        "only_mutate": [f"{target}/*.py" if is_folder else str(target)],
        "also_copy": _READ_BY_TESTS,
        "pytest_add_cli_args": [
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.quick_laws",
            "-m",
            "not slow and not real",
        ],
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [
        f"{name} =\n" + "".join(f"    {value}\n" for value in values) for name, values in settings.items()
    ]
    (WORK / "setup.cfg").write_text("[mutmut]\n" + "".join(lines))


def mutmut(*arguments: str) -> list[str]:
    """Return the command that starts mutmut; it must run in `WORK`."""
    return [str(Path(sys.executable).with_name("mutmut")), *arguments]


def try_mutants(*, pattern: str, workers: int) -> None:
    """Run the tests on each mutant whose name matches the pattern; mutmut prints its progress."""
    chosen = [pattern] if pattern else []
    done = subprocess.run(mutmut("run", "--max-children", str(workers), *chosen), cwd=WORK, check=False)
    if done.returncode != 0:
        raise MutationError("mutmut could not try the mutants; what it says is above")


def ask(*arguments: str) -> str:
    """Return what a command of mutmut prints."""
    return subprocess.run(mutmut(*arguments), cwd=WORK, capture_output=True, text=True, check=True).stdout


def read_statuses(results: str) -> dict[str, str]:
    """Return the status of each mutant that was tried, from what `mutmut results` prints."""
    return {name: status for name, status in _STATUS.findall(results) if status != "not checked"}


def read_change(name: str, diff: str) -> Change:
    """Return what a mutant changes, from what `mutmut show` prints."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    removed, added = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in ("-", "+")
    )
    return Change(function=function_of(name), before=removed, after=added)


def function_of(name: str) -> str:
    """Return the dotted name of the function that a mutant changes.

    mutmut writes `queues.quota.resources.x_is_equal__mutmut_3` for a function, and
    `queues.quota.quota_tree.xǁQuotaNodeǁadd__mutmut_3` for a method.
    """
    module, _, last = _NUMBER.sub("", name).rpartition(".")
    return f"{module}.{last.removeprefix('x').strip('ǁ').replace('ǁ', '.').removeprefix('_')}"


def read_equivalent(text: str) -> dict[Change, str]:
    """Return the changes that cannot be observed, each with the reason."""
    return {
        Change(function=one["function"], before=one["before"], after=one["after"]): one["reason"]
        for one in tomllib.loads(text).get("equivalent", ())
    }


def count(
    statuses: Mapping[str, str], changes: Mapping[str, Change], equivalent: Mapping[Change, str]
) -> tuple[str, list[str]]:
    """Return one line with the figures of a run, and the names of the survivors that need a test.

    `changes` are those of the mutants that survived. A mutant in `equivalent` is counted apart. One that
    ran out of time counts as noticed: the tests would not have ended.
    """
    apart = {name for name, change in changes.items() if change in equivalent}
    counts = Counter(dict.fromkeys(_STATUSES, 0))
    counts.update("equivalent" if name in apart else status for name, status in statuses.items())
    noticed, tried = counts["killed"] + counts["timeout"], len(statuses) - len(apart)
    figures = ", ".join(f"{number} {status}" for status, number in counts.items())
    share = f"{noticed / tried:.1%} noticed" if tried else "nothing to notice"
    return f"{len(statuses)} mutants: {figures}; {share}", sorted(set(changes) - apart)


def run(target: Path, *, tests: Sequence[str], pattern: str, workers: int) -> None:
    """Try the mutants of a folder or module and print what came of it. Raises MutationError."""
    lay_out(target, tests)
    print(f"Mutants of {target}, tried with {' '.join(tests)}", flush=True)
    try_mutants(pattern=pattern, workers=workers)
    statuses = read_statuses(ask("results", "--all", "true"))
    if not statuses:
        raise MutationError(f"{target} holds nothing that could be changed")
    survivors = [name for name, status in statuses.items() if status == "survived"]
    changes = {name: read_change(name, ask("show", name)) for name in survivors}
    figures, missed = count(statuses, changes, read_equivalent(EQUIVALENT.read_text()))
    for name in missed:
        change = changes[name]
        print(f"\nsurvived: {change.function}\n  - {change.before}\n  + {change.after}\n  {_shown_by(name)}")
    for function in sorted({function_of(name) for name, status in statuses.items() if status == "no tests"}):
        print(f"\nno tests reach {function}")
    print(f"\n{figures}")


def _shown_by(name: str) -> str:
    command = " ".join(mutmut("show", f"'{name}'"))
    return f"show it: (cd {WORK.name} && {command})"


def read_flags(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("target", type=Path, help="a folder or module, such as queues/quota")
    parser.add_argument("tests", nargs="*", help="paths for pytest; default: the tests of that folder")
    parser.add_argument(
        "--mutants",
        default="",
        help="only the mutants with such names: '*5' is a tenth of them, '*remove*' some functions",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Try the mutants of a folder. Returns the exit code."""
    flags = read_flags(sys.argv[1:] if argv is None else argv)
    try:
        tests = find_tests(flags.target, flags.tests)
    except MutationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        run(flags.target, tests=tests, pattern=flags.mutants, workers=flags.workers)
    except MutationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
