"""What a policy inherits, and why one with a base is not in force."""

from __future__ import annotations

from collections import UserDict

import pytest

from api.policy import (
    AdmissionPolicy,
    Aliases,
    Backfill,
    BackfillMode,
    Estimates,
    Ordering,
    OrderingMode,
    QuotaWindow,
)
from api.policy_inheritance import inherited

_SHORT = Ordering(mode=OrderingMode.SHORTEST_PREDICTED)
_AGED = Ordering(mode=OrderingMode.LEAST_ATTAINED)
_WINDOW = QuotaWindow(name="night", cluster_queue="q", flavor="f", resource="gpu", nominal=3)


def in_force(*policies: AdmissionPolicy) -> AdmissionPolicy:
    """Return the first policy with what it inherits."""
    found, faults = inherited({one.name: one for one in policies})
    assert faults == {}
    return found[policies[0].name]


def faults_of(*policies: AdmissionPolicy) -> dict[str, str]:
    """Return the sentences about policies that are not in force."""
    found, faults = inherited({one.name: one for one in policies})
    assert found.keys() | faults.keys() == {one.name for one in policies}
    assert found.keys() & faults.keys() == set()
    return dict(faults)


def test_a_policy_has_the_sections_of_its_base_that_it_lacks_and_keeps_its_own_whole() -> None:
    base = AdmissionPolicy(name="base", ordering=_SHORT, estimates=Estimates(), aliases=Aliases.ARTICLES)

    found = in_force(AdmissionPolicy(name="own", base="base", ordering=_AGED, precedence=3), base)

    assert (found.ordering, found.estimates, found.aliases) == (_AGED, Estimates(), Aliases.ARTICLES)
    assert (found.name, found.precedence) == ("own", 3)


def test_the_nearest_base_that_has_a_section_gives_it() -> None:
    far = AdmissionPolicy(name="far", ordering=_SHORT, estimates=Estimates())
    near = AdmissionPolicy(name="near", base="far", ordering=_AGED)

    found = in_force(AdmissionPolicy(name="own", base="near"), near, far)

    assert (found.ordering, found.estimates) == (_AGED, Estimates())


def test_a_section_that_is_switched_off_is_not_inherited() -> None:
    base = AdmissionPolicy(name="base", backfill=Backfill(mode=BackfillMode.EASY))
    off = Backfill(mode=BackfillMode.NONE)

    assert in_force(AdmissionPolicy(name="own", base="base", backfill=off), base).backfill_rules is None


def test_the_queues_and_the_calendar_of_the_base_are_its_own() -> None:
    base = AdmissionPolicy(name="base", queue_names=frozenset({"q"}), quota_windows=(_WINDOW,))

    found = in_force(AdmissionPolicy(name="own", base="base"), base)

    assert (found.queue_names, found.quota_windows) == (frozenset(), ())


class CountedPolicies(UserDict[str, AdmissionPolicy]):
    """Policies that count how often one of them is looked up."""

    lookups = 0

    def __getitem__(self, name: str) -> AdmissionPolicy:
        self.lookups += 1
        return super().__getitem__(name)


def test_a_long_chain_of_bases_is_followed_once_however_many_inherit_from_it() -> None:
    bases = [f"p{number}" for number in range(1, 500)]
    policies = CountedPolicies(
        {f"p{number}": AdmissionPolicy(name=f"p{number}", base=base) for number, base in enumerate(bases)}
    )
    policies["p499"] = AdmissionPolicy(name="p499", ordering=_SHORT)

    found, faults = inherited(policies)

    assert faults == {}
    assert {one.ordering for one in found.values()} == {_SHORT}
    assert policies.lookups < 5 * len(policies)


@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param((("own", "gone"),), {"own": "spec.base is 'gone'"}, id="the base does not exist"),
        pytest.param(
            (("own", "near"), ("near", "gone")),
            {"own": "spec.base of its base near is 'gone'", "near": "spec.base is 'gone'"},
            id="the base of its base does not exist",
        ),
        pytest.param(
            (("own", "own"),), {"own": "leads in a circle: own -> own"}, id="it names itself as its base"
        ),
        pytest.param(
            (("a", "b"), ("b", "a"), ("c", "a"), ("d", None)),
            {"a": "a -> b -> a", "b": "b -> a -> b", "c": "c -> a -> b -> a"},
            id="two name each other, and a third one of them",
        ),
    ],
)
def test_a_policy_whose_bases_lead_nowhere_is_not_in_force(
    policies: tuple[tuple[str, str | None], ...], want: dict[str, str]
) -> None:
    found = faults_of(*(AdmissionPolicy(name=name, base=base) for name, base in policies))

    assert found.keys() == want.keys()
    for name, text in want.items():
        assert text in found[name]
