"""The record of the check that gave a Workload its quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.quota_check import QuotaCheck, quota_check
from api.reasons import ConditionType
from api.workload import Condition
from tests.builders import make_workload, reserved, with_conditions

CHECK = QuotaCheck(quota="0123456789abcdef", fence=7)
RECORD = Condition(
    type=ConditionType.QUOTA_CHECKED, status=True, reason="FitsQuota", message=CHECK.message, at=5.0
)


@pytest.mark.parametrize(
    ("record", "want"),
    [
        pytest.param(RECORD, CHECK, id="written with the reservation"),
        pytest.param(replace(RECORD, at=4.0), None, id="of an earlier reservation"),
        pytest.param(replace(RECORD, status=False), None, id="taken back"),
        pytest.param(replace(RECORD, message="whatever"), None, id="of another form"),
        pytest.param(replace(RECORD, type="other"), None, id="none"),
        pytest.param(
            replace(RECORD, message=CHECK.message.replace("fence 7", "fence " + "7" * 5_000)),
            None,
            id="forged with a fence of more digits than Python converts",
        ),
        pytest.param(
            replace(RECORD, message=CHECK.message.replace("fence 7", "fence ٧")),
            None,
            id="forged with digits of another script",
        ),
        pytest.param(
            replace(RECORD, message=f"{CHECK.message}\n"), None, id="forged with a line behind its end"
        ),
    ],
)
def test_a_record_counts_for_the_reservation_that_it_was_written_with(
    record: Condition, want: QuotaCheck | None
) -> None:
    workload = with_conditions(reserved(make_workload("w", gpus=1), at=5.0), record)

    assert quota_check(workload) == want


def test_a_workload_without_quota_has_no_check() -> None:
    assert quota_check(with_conditions(make_workload("w", gpus=1), RECORD)) is None
