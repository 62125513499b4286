"""Which settings of an AdmissionPolicy this version does not act on yet.

A setting without effect is never taken silently: the policy's Accepted condition names it. Whoever builds
a feature takes its line out of the table; the table goes when it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from api.policy import AdmissionPolicy

_Used = Callable[[AdmissionPolicy], bool]


NOT_IN_FORCE: Mapping[str, _Used] = {
    "spec.reservations[].domain": lambda policy: any(one.domain for one in policy.reservations),
}
"""Settings without effect, by the name that people see, and whether a policy uses them."""


def without_effect(policy: AdmissionPolicy) -> tuple[str, ...]:
    """Return the settings that the policy uses and nothing acts on, in the order of the spec.

    Where a whole section has no effect its fields are not named again.
    """
    idle = [name for name, is_used in NOT_IN_FORCE.items() if is_used(policy)]
    return tuple(name for name in idle if name.rpartition(".")[0] not in idle)
