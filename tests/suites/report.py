"""What a suite's run has found, read from Ginkgo's JSON report, and shown as a table or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.suites.applicable import reason_against


class Outcome(StrEnum):
    """How a case ended. NOT_RUN: it was left out, or an earlier step of its container failed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of a suite. `message`: the first failure or the reason; `place`: FILE:LINE of the failure."""

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The cases of one suite. `fault`: why there are none, or why the run ended early."""

    suite: str
    cases: tuple[Case, ...]
    seconds: float
    fault: str = ""

    def count(self, outcome: Outcome) -> int:
        """Return how many cases ended so."""
        return sum(case.outcome is outcome for case in self.cases)

    @property
    def has_failed(self) -> bool:
        """Whether a case failed, or the run itself."""
        return bool(self.fault) or self.count(Outcome.FAILED) > 0


def read_result(suite: str, path: Path, *, seconds: float, fault: str = "") -> Result:
    """Return the result of a run from the report that it has written, if it has."""
    if not path.is_file():
        return Result(suite=suite, cases=(), seconds=seconds, fault=fault or "the suite wrote no report")
    cases: list[Case] = []
    for report in json.loads(path.read_text()):
        for spec in report["SpecReports"] or ():
            if spec["LeafNodeType"] == "It":
                cases.append(_case(suite, spec))
            elif _has_failed(spec):
                where = spec["LeafNodeType"]
                fault = fault or f"{where}: {_first_lines(spec['Failure']['Message'])}"
    return Result(suite=suite, cases=tuple(cases), seconds=seconds, fault=fault)


def _case(suite: str, spec: dict[str, Any]) -> Case:
    name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
    seconds = spec["RunTime"] / 1e9
    if reason := reason_against(suite, name):
        return Case(name=name, outcome=Outcome.NOT_APPLICABLE, seconds=0.0, message=reason)
    if spec["State"] == "passed":
        return Case(name=name, outcome=Outcome.PASSED, seconds=seconds)
    if not _has_failed(spec):
        message = spec.get("Failure", {}).get("Message", "")
        return Case(name=name, outcome=Outcome.NOT_RUN, seconds=0.0, message=_first_lines(message))
    failure = spec["Failure"]
    location = failure["Location"]
    return Case(
        name=name,
        outcome=Outcome.FAILED,
        seconds=seconds,
        message=failure["Message"],
        place=f"{Path(location['FileName']).name}:{location['LineNumber']}",
    )


def _has_failed(spec: dict[str, Any]) -> bool:
    return spec["State"] not in ("passed", "skipped", "pending")


def _first_lines(text: str, most: int = 160) -> str:
    return " ".join(text.split())[:most]


def to_json(results: Sequence[Result], *, kueue: str) -> str:
    """Return all results as JSON."""
    return json.dumps({"kueue": kueue, "suites": [asdict(result) for result in results]}, indent=2)


def to_table(results: Sequence[Result]) -> str:
    """Return a line for each suite, then the cases that failed and those that are not applicable."""
    width = max(len(result.suite) for result in results)
    lines = [f"{'SUITE':{width}}  PASSED  FAILED  NOT APPLICABLE  NOT RUN  SECONDS"]
    for result in results:
        counts = [result.count(outcome) for outcome in Outcome]
        lines.append(
            f"{result.suite:{width}}  {counts[0]:6}  {counts[1]:6}  {counts[2]:14}  {counts[3]:7}  "
            f"{result.seconds:7.0f}"
        )
    for result in results:
        if result.fault:
            lines += ["", f"{result.suite}: {result.fault}"]
        failed = [case for case in result.cases if case.outcome is Outcome.FAILED]
        if failed:
            lines += ["", f"Failed in {result.suite}:"]
        for case in failed:
            lines += [f"  {case.name}", f"    {case.place} {_first_lines(case.message)}"]
        reasons = Counter(case.message for case in result.cases if case.outcome is Outcome.NOT_APPLICABLE)
        lines += [f"{result.suite}: {count} not applicable: {reason}" for reason, count in reasons.items()]
    return "\n".join(lines)
