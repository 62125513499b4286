"""The same faults on a real API server: its definitions refuse some of them, and Berth reports the rest."""

from __future__ import annotations

import re

import pytest

from tests.controlplane import RestError
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_invalid_specs import (
    CASES,
    POLICIES,
    REFUSED,
    Case,
    Refused,
    create_faulty,
    expect_policy_reported,
    expect_refused,
    expect_reported,
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]


@pytest.fixture
def scene(real_controller: Replica, real_scene: Scene) -> Scene:
    """Give a namespace that the controller serves, with a flavor."""
    assert real_controller.child.is_running()
    real_scene.create_flavor()
    return real_scene


def is_named(case: Case, refused: RestError) -> bool:
    """Return whether a refusal names the field, as far down as its rule reaches, or has the rule's words."""
    if case.rule:
        return refused.status == 422 and case.rule in str(refused)
    path = case.says.split()[0]
    fields = re.findall(r"[a-zA-Z]+", path.removeprefix("spec."))
    return refused.status == 422 and any(field in str(refused) for field in reversed(fields))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_invalid_spec_is_refused_at_once_or_reported_by_event_and_condition(
    scene: Scene, case: Case
) -> None:
    refused, name = None, ""
    try:
        name = create_faulty(scene, case)
    except RestError as error:
        refused = error

    assert refused is None or is_named(case, refused), refused
    if name:
        expect_reported(scene, case, name)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_definition_is_refused_with_field_and_rule(scene: Scene, case: Refused) -> None:
    expect_refused(scene, case)


@pytest.mark.parametrize("case", POLICIES.values(), ids=POLICIES)
def test_a_policy_is_refused_at_once_or_says_that_it_is_not_in_force(scene: Scene, case: Case) -> None:
    refused = None
    try:
        expect_policy_reported(scene, case)
    except RestError as error:
        refused = error

    assert refused is None or is_named(case, refused), refused
