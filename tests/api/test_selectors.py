"""Selectors, affinity and tolerations. The rules are Kubernetes' own."""

from __future__ import annotations

import pytest

from api.objects.common import WireSelector, WireSelectorRequirement, WireTaint, WireToleration
from api.objects.templates import (
    WireAffinity,
    WireNodeAffinity,
    WireNodeSelector,
    WireNodeSelectorTerm,
    WirePodSpec,
)
from api.selectors import find_untolerated, matches_flavor, matches_selector, selector_problem, tolerates

LABELS = {"team": "a", "tier": "1"}
TAINT = WireTaint(key="gpu", value="yes", effect="NoSchedule")


def expression(key: str, operator: str, *values: str) -> WireSelector:
    requirement = WireSelectorRequirement(key=key, operator=operator, values=values or None)
    return WireSelector(match_expressions=(requirement,))


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, False, id="no selector selects nothing"),
        pytest.param(WireSelector(), True, id="an empty selector selects everything"),
        pytest.param(WireSelector(match_labels={"team": "a"}), True, id="a label that is there"),
        pytest.param(WireSelector(match_labels={"team": "b"}), False, id="a label of another value"),
        pytest.param(expression("team", "In", "a", "b"), True, id="In holds for one of the values"),
        pytest.param(expression("zone", "In", "a"), False, id="In needs the key"),
        pytest.param(expression("team", "NotIn", "b"), True, id="NotIn holds for another value"),
        pytest.param(expression("zone", "NotIn", "b"), True, id="NotIn holds for an absent key"),
        pytest.param(expression("team", "Exists"), True, id="Exists holds for any value"),
        pytest.param(expression("zone", "DoesNotExist"), True, id="DoesNotExist holds for an absent key"),
        pytest.param(expression("tier", "Gt", "0"), True, id="Gt compares numbers"),
        pytest.param(expression("team", "Lt", "5"), False, id="Lt fails for a value that is no number"),
        pytest.param(expression("team", "Like", "a"), False, id="an unknown operator matches nothing"),
    ],
)
def test_a_label_selector_selects(selector: WireSelector | None, want: bool) -> None:
    assert matches_selector(selector, LABELS) is want


def test_absent_labels_are_no_labels() -> None:
    assert matches_selector(expression("team", "DoesNotExist"), None)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(expression("team", "In", "a"), None, id="a sound one"),
        pytest.param(expression("team", "In"), "needs values", id="In without values"),
        pytest.param(expression("team", "Like", "a"), "'Like' is none of", id="an operator that is none"),
    ],
)
def test_a_selector_that_cannot_hold_is_named(selector: WireSelector | None, want: str | None) -> None:
    problem = selector_problem(selector)

    assert problem is None if want is None else want in (problem or "")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(WireToleration(key="gpu", value="yes"), True, id="equal key and value, any effect"),
        pytest.param(WireToleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(WireToleration(key="gpu", operator="Exists"), True, id="Exists needs no value"),
        pytest.param(WireToleration(operator="Exists"), True, id="Exists without key covers everything"),
        pytest.param(
            WireToleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"
        ),
        pytest.param(
            WireToleration(operator="Equal", value="yes"), False, id="Equal without key is no cover"
        ),
    ],
)
def test_a_toleration_covers_a_taint(toleration: WireToleration, want: bool) -> None:
    assert tolerates(toleration, TAINT) is want


def test_only_taints_that_keep_pods_away_need_to_be_tolerated() -> None:
    soft = WireTaint(key="cheap", effect="PreferNoSchedule")

    assert find_untolerated((soft,), ()) is None
    assert find_untolerated((soft, TAINT), ()) is TAINT
    assert find_untolerated((TAINT,), (WireToleration(key="gpu", operator="Exists"),)) is None


def pod(node_selector: dict[str, str] | None = None, *terms: dict[str, str]) -> WirePodSpec:
    """A pod with a node selector, and alternatives of required affinity as key to value."""
    wire = tuple(
        WireNodeSelectorTerm(
            match_expressions=tuple(
                WireSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in one.items()
            )
        )
        for one in terms
    )
    required = WireNodeSelector(node_selector_terms=wire)
    node_affinity = WireNodeAffinity(required_during_scheduling_ignored_during_execution=required)
    return WirePodSpec(
        node_selector=node_selector, affinity=WireAffinity(node_affinity=node_affinity) if terms else None
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(pod(), True, id="a pod that asks for nothing fits every flavor"),
        pytest.param(pod({"model": "a100"}), True, id="a selector that the flavor's labels meet"),
        pytest.param(pod({"model": "h100"}), False, id="a selector that they contradict"),
        pytest.param(pod({"zone": "x"}), True, id="a key that the flavor does not define is not looked at"),
        pytest.param(pod(None, {"model": "h100"}), False, id="required affinity that they contradict"),
        pytest.param(pod(None, {"model": "h100"}, {"model": "a100"}), True, id="terms are alternatives"),
        pytest.param(
            pod(None, {"model": "h100"}, {"zone": "x"}),
            True,
            id="a term without a known key can hold somewhere",
        ),
    ],
)
def test_pods_match_a_flavor_by_the_labels_that_it_defines(spec: WirePodSpec, want: bool) -> None:
    assert matches_flavor(spec, {"model": "a100"}) is want
