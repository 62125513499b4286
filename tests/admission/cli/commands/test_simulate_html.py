"""`berth simulate -o html`: the page that a user mails to colleagues."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode

EXAMPLE = Path(__file__).parents[4] / "examples" / "trace.csv"
ODD_NAME = "<b>R&D</b> \"x\" 'y' \x07"
POLICIES = ("fifo", "best-effort", "easy")


def output(capsys: pytest.CaptureFixture[str], trace: Path, form: str, *arguments: str) -> str:
    code = main(["simulate", "--jobs", str(trace), "--nodes", "4x8", "-o", form, *arguments])

    assert code == ExitCode.DONE
    return capsys.readouterr().out


def page(capsys: pytest.CaptureFixture[str], trace: Path, *arguments: str) -> ElementTree.Element:
    """Return the page as XML, which fails where it is not well-formed."""
    return ElementTree.fromstring(output(capsys, trace, "html", *arguments))


def texts(root: ElementTree.Element, path: str) -> list[str]:
    return ["".join(found.itertext()) for found in root.iterfind(path)]


def without_run_seconds(report: dict[str, Any]) -> dict[str, Any]:
    for one in report["policies"].values():
        del one["run_seconds"]
    return report


def crowded(tmp_path: Path, *, users: int, jobs: int) -> Path:
    """Return a trace whose Jobs fill the cluster one after another; a promise is made to each that waits."""
    rows = [f"{n},{ODD_NAME if n % users == 0 else f'team-{n % users}'},32,{n / 100},10" for n in range(jobs)]
    trace = tmp_path / "trace.csv"
    quoted = [row.replace(ODD_NAME, '"' + ODD_NAME.replace('"', '""') + '"') for row in rows]
    trace.write_text("\n".join(["job_id,user,num_gpu,submit_time,duration", *quoted]) + "\n")
    return trace


def test_every_policy_is_in_the_table_and_in_every_chart(capsys: pytest.CaptureFixture[str]) -> None:
    root = page(capsys, EXAMPLE, "--policy", ",".join(POLICIES))

    assert tuple(texts(root, ".//tbody/tr/td[1]")) == POLICIES
    usage, by_tenant, by_size, *_ = root.iterfind(".//svg")
    for drawing in (usage, by_tenant, by_size):
        assert set(POLICIES) <= set(texts(drawing, ".//text"))


def test_the_figures_are_those_of_the_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    want = json.loads(output(capsys, EXAMPLE, "json", "--policy", "fifo,easy", "--load", "3"))
    root = page(capsys, EXAMPLE, "--policy", "fifo,easy", "--load", "3")

    (found,) = (json.loads(text) for text in texts(root, ".//script[@id='figures']"))
    assert without_run_seconds(found) == without_run_seconds(want)


def test_the_table_is_that_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, EXAMPLE, "table", "--policy", "fifo").splitlines()
    root = page(capsys, EXAMPLE, "--policy", "fifo")

    # The last column is real time and differs from run to run.
    assert lines[1].split()[:-1] == " ".join(texts(root, ".//tbody/tr/td")).split()[:-1]


def test_the_page_begins_with_what_was_compared_and_how_it_came_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = page(capsys, EXAMPLE, "--policy", "fifo,easy")

    titles = texts(root, ".//h2")
    assert (titles[0], titles[-1]) == ("Policies", "Settings")
    (subject, *_) = texts(root, "./body/p")
    assert subject.startswith("40 Jobs submitted in 29 min, on 4x8 = 32 GPUs, under 2 policies side by side.")


def test_every_chart_says_what_its_marks_mean(capsys: pytest.CaptureFixture[str]) -> None:
    root = page(capsys, EXAMPLE, "--policy", "easy", "--load", "3")

    legends = list(root.iterfind(".//div[@class='legend']"))
    assert len(legends) == len(list(root.iterfind(".//svg"))) == 4
    assert ["".join(one.itertext()) for one in legends[1]] == ["median", "to P90", "to P99"]


@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param("fifo", False, id="no Job may evict others"),
        pytest.param("fifo,preemption", True, id="in one policy some may"),
    ],
)
def test_a_column_in_which_no_policy_has_anything_is_left_out(
    policies: str, want: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = page(capsys, EXAMPLE, "--policy", policies)

    assert ("STRICT" in texts(root, ".//th")) is want
    assert any("STRICT:" in text for text in texts(root, ".//p")) is want


def test_settings_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    root = page(capsys, EXAMPLE, "--policy", "fifo", "--load", "1.5")

    settings = dict(zip(texts(root, ".//dt"), texts(root, ".//dd"), strict=True))
    assert (settings["nodes"], settings["load"], settings["job count"]) == ("4x8", "1.5", "40")


def test_names_in_the_trace_are_text_and_no_markup(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = crowded(tmp_path, users=2, jobs=6)
    root = page(capsys, trace, "--policy", "easy")

    # What XML cannot hold is replaced; all else is shown as it was written.
    shown = ODD_NAME.replace("\x07", "\ufffd")
    assert any(text.startswith(shown) for text in texts(root, ".//text"))
    assert not list(root.iterfind(".//b"))


def test_nothing_is_loaded_from_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, EXAMPLE, "html", "--policy", "easy")

    assert not re.search(r"https?:|\bsrc=|\bhref=|@import|url\(", text)


def test_only_policies_that_promise_have_a_chart_of_promises(capsys: pytest.CaptureFixture[str]) -> None:
    root = page(capsys, EXAMPLE, "--policy", "fifo,easy", "--load", "3")

    assert [text for text in texts(root, ".//h2") if "Promises" in text] == ["Promises of easy"]


def test_many_promises_and_tenants_are_bounded_and_the_page_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = crowded(tmp_path, users=14, jobs=70)
    report = json.loads(output(capsys, trace, "json", "--policy", "easy"))
    root = page(capsys, trace, "--policy", "easy")

    promises = report["policies"]["easy"]["promises"]
    assert promises > 60
    notes = " ".join(texts(root, ".//p"))
    assert f"60 of {promises} promised Jobs" in notes
    assert "The 12 of 14 tenants" in notes
    *_, gantt = root.iterfind(".//svg")
    assert len(list(gantt.iterfind(".//line[@class='promise']"))) == 60
