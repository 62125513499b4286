"""AdmissionPolicy objects as values: accepted and rejected ones, and the policy that governs a queue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.models.admission_policy import AdmissionPolicy as AdmissionPolicyModel
from api.objects.common import Meta
from api.objects.policies import AdmissionPolicyObject
from api.parsing.cron import CronError, parse_cron
from api.parsing.problems import SpecError
from api.policy import (
    KUEUE,
    AdmissionPolicy,
    Backfill,
    BackfillMode,
    DomainRules,
    FlavorPromotion,
    Ordering,
    PlacementRules,
    PreemptionRules,
    ScoringWeights,
    SizeRule,
    VictimRules,
    choose_policy,
)
from api.policy_objects import to_admission_policy
from tests.api.samples import full
from tests.builders import make_cluster_queue


def read(spec: dict[str, Any], name: str = "policy") -> AdmissionPolicy:
    raw = msgspec.Raw(msgspec.json.encode(spec))
    return to_admission_policy(AdmissionPolicyObject(metadata=Meta(name=name), spec=raw))


def test_a_policy_without_sections_switches_nothing_on() -> None:
    assert read({}, name="") == KUEUE


@pytest.mark.parametrize(
    ("section", "want"),
    [
        pytest.param({"ordering": {}}, Ordering(), id="ordering"),
        pytest.param({"backfill": {}}, Backfill(), id="backfill"),
        pytest.param({"preemption": {}}, PreemptionRules(), id="preemption"),
        pytest.param({"placement": {}}, PlacementRules(), id="placement"),
    ],
)
def test_an_empty_section_is_on_with_its_defaults(section: dict[str, Any], want: object) -> None:
    policy = read(section)

    (name,) = section
    assert getattr(policy, name) == want


def test_every_field_arrives() -> None:
    spec = full("AdmissionPolicy")["spec"]
    policy = read(spec)

    assert policy.queue_names == {"vision", "speech"}
    assert policy.ordering is not None
    assert policy.ordering.level_ends == (3600.0, 30600.0)
    assert policy.preemption is not None
    assert policy.preemption.rules == VictimRules(
        protected_priority=1000, prefers_inference=True, checkpoint_max_age_seconds=900
    )
    assert policy.placement is not None
    assert policy.placement.domain_rules == DomainRules(
        leaf_level="cloud.example.com/rack",
        adjacency_label="cloud.example.com/rack-number",
        max_nodes_per_leaf=8,
        max_gpus_per_leaf=64,
        size_rules=(SizeRule(max_nodes=2, leaves=1),),
    )
    assert policy.placement.weights == ScoringWeights(
        resource_availability=0.25,
        topology_alignment=0.25,
        domain_utilization=0.0,
        historical_performance=0.5,
    )
    assert policy.placement.flavors is not None
    assert policy.placement.flavors.promote == FlavorPromotion(min_gain=0.1, max_moves_per_hour=3)
    night, course = policy.quota_windows
    assert (night.start_at, night.schedule is not None, course.nominal) == (None, True, 8)
    launch, benchmark = policy.reservations
    assert launch.amounts == {("a100", "nvidia.com/gpu"): 32}
    assert benchmark.domain == ("block-1", "rack-3")


def test_only_conservative_backfill_promises_more_than_one_start() -> None:
    easy = read({"backfill": {"mode": "EASY", "reservationDepth": 7}}).backfill
    conservative = read({"backfill": {"mode": "Conservative", "reservationDepth": 7}}).backfill

    assert (easy, conservative) == (
        Backfill(mode=BackfillMode.EASY),
        Backfill(mode=BackfillMode.CONSERVATIVE, reservation_depth=7),
    )


def test_an_object_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    validate, validated = AdmissionPolicyModel.model_validate, []

    def counting(obj: object) -> AdmissionPolicyModel:
        validated.append(obj)
        return validate(obj)

    monkeypatch.setattr(AdmissionPolicyModel, "model_validate", counting)

    read({})

    assert len(validated) == 1


def test_what_cannot_be_used_is_named_with_field_value_and_rule() -> None:
    with pytest.raises(SpecError) as caught:
        read({"backfill": {"mode": "Easy"}, "estimates": {"quantile": 90}})

    assert str(caught.value) == (
        "spec.backfill.mode is \"Easy\": must be 'None', 'EASY', 'Conservative' or 'Opportunistic';"
        " spec.estimates.quantile is 90: must be at most 1"
    )


@pytest.mark.parametrize(
    ("bindings", "want"),
    [
        pytest.param({}, "", id="no policy: Kueue's decisions"),
        pytest.param({"a": {}}, "a", id="a policy that selects no queue governs all"),
        pytest.param({"a": {"clusterQueues": {"names": ["other"]}}}, "", id="a policy of another queue"),
        pytest.param({"a": {"clusterQueues": {"names": ["gpus"]}}}, "a", id="by name"),
        pytest.param(
            {"a": {"clusterQueues": {"selector": {"matchLabels": {"tier": "gold"}}}}}, "a", id="by label"
        ),
        pytest.param(
            {"a": {"clusterQueues": {"selector": {"matchLabels": {"tier": "tin"}}}}}, "", id="another label"
        ),
        pytest.param(
            {"a": {"clusterQueues": {"names": ["other"], "selector": {"matchLabels": {"tier": "gold"}}}}},
            "a",
            id="name or label",
        ),
        pytest.param({"a": {}, "b": {"precedence": 1}}, "b", id="the highest precedence"),
        pytest.param({"b": {}, "a": {}}, "a", id="of equal precedence the first by name"),
        pytest.param(
            {"a": {"precedence": -1}, "b": {"precedence": 5, "clusterQueues": {"names": ["other"]}}},
            "a",
            id="precedence counts only among those bound to the queue",
        ),
    ],
)
def test_one_policy_governs_a_cluster_queue(bindings: dict[str, dict[str, Any]], want: str) -> None:
    queue = make_cluster_queue("gpus", labels={"tier": "gold"})

    chosen = choose_policy([read(spec, name) for name, spec in bindings.items()], queue)

    assert chosen.name == want


@pytest.mark.parametrize(
    ("line", "minutes", "hours", "weekdays"),
    [
        pytest.param("*/20 8-10 * * *", {0, 20, 40}, {8, 9, 10}, set(range(7)), id="steps and ranges"),
        pytest.param("5,7 0 * * mon-fri", {5, 7}, {0}, {1, 2, 3, 4, 5}, id="lists and names of days"),
        pytest.param("0 22/1 * jan 7", {0}, {22, 23}, {0}, id="from an hour on, on Sundays written as 7"),
    ],
)
def test_a_cron_line_is_read(line: str, minutes: set[int], hours: set[int], weekdays: set[int]) -> None:
    read_line = parse_cron(line)

    assert set(read_line.minutes) == minutes
    assert set(read_line.hours) == hours
    assert set(read_line.weekdays) == weekdays


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param("0 8 * *", "must have five fields", id="four fields"),
        pytest.param("60 8 * * *", "the minute '60'", id="a minute too late"),
        pytest.param("0 9-8 * * *", "the hour '9-8'", id="a range that falls"),
        pytest.param("0 8 * * someday", "the day of week 'someday'", id="a name of no day"),
        pytest.param("*/0 8 * * *", "the minute '*/0'", id="a step of nothing"),
    ],
)
def test_a_broken_cron_line_is_named(line: str, want: str) -> None:
    with pytest.raises(CronError, match=want.replace("*", r"\*")):
        parse_cron(line)


def test_either_day_counts_where_both_are_restricted() -> None:
    line = parse_cron("0 8 13 * fri")

    assert line.has_day(month=3, month_day=13, weekday=1)
    assert line.has_day(month=3, month_day=20, weekday=5)
    assert not line.has_day(month=3, month_day=14, weekday=6)
