"""The command that breaks the code of a folder: which tests it takes, and how it counts what they notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import (
    EQUIVALENT,
    ROOT,
    Change,
    MutationError,
    count,
    find_tests,
    main,
    read_change,
    read_equivalent,
    read_statuses,
)

SHOWN = """\
# queues.quota.quota_tree.xǁQuotaCellǁadd__mutmut_4: survived
--- queues/quota/quota_tree.py
+++ queues/quota/quota_tree.py
@@ -3,7 +3,7 @@
     cell: QuotaCell | None = self
-    while cell is not None and amount > 0:
+    while cell is not None and amount >= 0:
         cell.usage += amount
"""
ADD = "queues.quota.quota_tree.xǁQuotaCellǁadd__mutmut_4"
OTHER = "queues.quota.resources.x__is_equal__mutmut_1"
CHANGE = Change(
    function="queues.quota.quota_tree.QuotaCell.add",
    before="while cell is not None and amount > 0:",
    after="while cell is not None and amount >= 0:",
)


@pytest.mark.parametrize(
    ("target", "chosen", "want"),
    [
        pytest.param(
            "admission/nomination",
            [],
            ["tests/admission/nomination", "tests/admission/scheduler"],
            id="the folder of that name and others that reach the code",
        ),
        pytest.param("api/parsing", [], ["tests/api/parsing"], id="the folder of that name alone"),
        pytest.param(
            "api/parsing/cron.py", [], ["tests/api/parsing"], id="for a module, those of its folder"
        ),
        pytest.param("api/parsing", ["tests/api"], ["tests/api"], id="those that were named"),
    ],
)
def test_the_tests_that_are_tried(target: str, chosen: list[str], want: list[str]) -> None:
    assert find_tests(Path(target), chosen) == want


@pytest.mark.parametrize("target", ["", "queues/quotas", "tests/queues", "/tmp", "../queues"])
def test_a_folder_that_holds_no_code_is_refused_in_one_sentence(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([target]) == 2

    said = capsys.readouterr().err
    assert "names no folder of admission, queues or api; try FOLDER=queues/quota\n" in said
    assert said.count("\n") == 1


def test_a_folder_without_tests_of_its_own_asks_for_some() -> None:
    with pytest.raises(MutationError, match="no tests are known for api/config; name them with TESTS="):
        find_tests(Path("api/config"), [])


def test_every_folder_with_more_tests_exists() -> None:
    for folder in ("flavors", "nomination", "preemption", "snapshot"):
        assert all((ROOT / path).exists() for path in find_tests(Path("admission", folder), []))


def test_a_change_is_known_by_its_function_and_its_lines() -> None:
    assert read_change(ADD, SHOWN) == CHANGE


def test_what_was_not_tried_has_no_status() -> None:
    results = f"    {ADD}: survived\n    {OTHER}: not checked\n    {ADD[:-1]}5: no tests\n"

    assert read_statuses(results) == {ADD: "survived", f"{ADD[:-1]}5": "no tests"}


def test_equivalent_mutants_count_neither_as_noticed_nor_as_unnoticed() -> None:
    statuses = {ADD: "survived", OTHER: "survived", "a": "killed", "b": "timeout", "c": "no tests"}
    changes = {ADD: CHANGE, OTHER: Change(function="queues.quota.resources.is_equal", before="1", after="2")}

    figures, missed = count(statuses, changes, {CHANGE: "adding nothing changes nothing"})

    assert figures == ("5 mutants: 1 killed, 1 survived, 1 timeout, 1 no tests, 1 equivalent; 50.0% noticed")
    assert missed == [OTHER]


def test_each_equivalent_mutant_names_lines_of_the_code() -> None:
    """A change of such a line takes the entry with it."""
    for change, reason in read_equivalent(EQUIVALENT.read_text()).items():
        module = ROOT / ("/".join(change.function.split(".")[:3]) + ".py")
        lines = {line.strip() for line in module.read_text().splitlines()}
        assert set(change.before.split("\n")) <= lines, change
        assert reason
