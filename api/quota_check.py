"""The record of the check that gave a Workload its quota: a condition written together with its admission.

It names the quota that the admission was checked against, as a digest of the whole quota tree, and the fence
of the leader that checked it. A later leader tells by it two cases apart that look the same otherwise: usage
beyond the quota because two leaders gave the quota away twice, and because an administrator lowered it.

It is a condition, because the write of an admission can change nothing outside of the status, and because
Kueue and its tools keep conditions of a type that they do not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from api.reasons import ConditionType
from api.workload import Workload

REASON = "FitsQuota"
_MESSAGE = re.compile(r"Checked against quota ([0-9a-f]{1,64}) of its cohort under fence ([0-9]{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCheck:
    """`quota` is the digest of the quota tree, `fence` that of the leader."""

    quota: str
    fence: int

    @property
    def message(self) -> str:
        """Return the message of the condition."""
        return f"Checked against quota {self.quota} of its cohort under fence {self.fence}"


def quota_check(workload: Workload) -> QuotaCheck | None:
    """Return the check that gave the Workload the quota that it holds; None if none is recorded.

    Kueue and other programs record none.
    """
    check = workload.conditions.get(ConditionType.QUOTA_CHECKED)
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    if check is None or reserved is None or not (check.status and reserved.status):
        return None
    found = _MESSAGE.fullmatch(check.message)
    # One of an earlier reservation has another time: a program that does not know the condition leaves it.
    if found is None or check.at != reserved.at:
        return None
    return QuotaCheck(quota=found[1], fence=int(found[2]))
