"""tests.suites reads what Ginkgo reports, and refuses code of Kueue that its changes do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.suites.applicable import NOT_APPLICABLE
from tests.suites.changes import CHANGES, ChangeFailed, apply
from tests.suites.report import Outcome, read_result, to_json, to_table
from tests.suites.run import SUITES


def spec(text: str, state: str, *, node: str = "It", message: str = "") -> dict[str, Any]:
    """Return one entry of Ginkgo's report."""
    found: dict[str, Any] = {
        "ContainerHierarchyTexts": ["Scheduler", "when it is late"],
        "LeafNodeText": text,
        "LeafNodeType": node,
        "State": state,
        "RunTime": 1_500_000_000,
    }
    if message:
        place = {"FileName": "/kueue/scheduler_test.go", "LineNumber": 7}
        found["Failure"] = {"Message": message, "Location": place}
    return found


def report(folder: Path, *specs: dict[str, Any]) -> Path:
    """Write a report of one suite and return its path."""
    path = folder / "report.json"
    path.write_text(json.dumps([{"SpecReports": list(specs)}]))
    return path


def test_each_case_is_counted_once_by_how_it_ended(tmp_path: Path) -> None:
    path = report(
        tmp_path,
        spec("admits", "passed"),
        spec("evicts", "failed", message="Expected\n    0\nto equal\n    1"),
        spec("waits", "timedout", message="timed out"),
        spec("is left out", "skipped"),
        spec("Should retry on failed preemptions", "skipped"),
        spec("", "passed", node="BeforeSuite"),
    )

    result = read_result("scheduler", path, seconds=3.0)

    assert {outcome: result.count(outcome) for outcome in Outcome} == {
        Outcome.PASSED: 1,
        Outcome.FAILED: 2,
        Outcome.NOT_APPLICABLE: 1,
        Outcome.NOT_RUN: 1,
    }
    assert result.has_failed
    evicts = result.cases[1]
    assert (evicts.name, evicts.place, evicts.seconds) == (
        "Scheduler when it is late evicts",
        "scheduler_test.go:7",
        1.5,
    )


def test_a_suite_that_cannot_begin_has_failed_although_no_case_has(tmp_path: Path) -> None:
    path = report(
        tmp_path, spec("", "failed", node="BeforeSuite", message="no etcd"), spec("admits", "skipped")
    )

    result = read_result("scheduler", path, seconds=1.0)

    assert (result.fault, result.count(Outcome.NOT_RUN), result.has_failed) == (
        "BeforeSuite: no etcd",
        1,
        True,
    )


def test_a_run_without_a_report_says_so(tmp_path: Path) -> None:
    result = read_result("tas", tmp_path / "report.json", seconds=1.0)

    assert (result.fault, result.has_failed) == ("the suite wrote no report", True)
    assert "the suite wrote no report" in to_table([result])


def test_a_failed_case_is_shown_with_its_place_and_first_message(tmp_path: Path) -> None:
    path = report(tmp_path, spec("evicts", "failed", message="Expected\n    0\nto equal\n    1"))
    result = read_result("scheduler", path, seconds=3.0)

    assert "    scheduler_test.go:7 Expected 0 to equal 1" in to_table([result]).splitlines()
    (suite,) = json.loads(to_json([result], kueue="v1"))["suites"]
    assert suite["cases"][0]["outcome"] == "failed"


def test_code_of_kueue_that_lacks_a_changed_text_is_refused_by_name(tmp_path: Path) -> None:
    first = CHANGES[0]
    path = tmp_path / first.path
    path.parent.mkdir(parents=True)
    path.write_text(f"{first.old} {first.old}")

    with pytest.raises(ChangeFailed, match=f"{first.path} of this release has 2 times, not once"):
        apply(tmp_path)


def test_each_entry_that_is_not_applicable_names_a_suite_and_a_reason() -> None:
    assert [entry for entry in NOT_APPLICABLE if entry.suite not in SUITES or not entry.reason] == []
