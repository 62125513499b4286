"""Which victims are asked to save before eviction, for how long, and what becomes of the request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.preemption.checkpoint_before_eviction import (
    SaveOutcome,
    SavePlan,
    SaveStage,
    leaving_seconds,
    next_stage_at,
    outcome_of,
    outcome_of_stop,
    plan_save,
    stage_of,
)
from api.eviction import EvictionRequest, current_request, read_request, render_request
from api.keys import EVICTION
from api.objects.templates import WirePodSpec, WirePodTemplate
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, PreemptionRules
from api.reasons import EvictionReason, PreemptionReason
from api.workload import PodSetAssignment, Workload, WorkloadKey
from tests.builders import (
    finished,
    make_condition,
    make_pod_set,
    make_workload,
    released,
    reserved,
    with_conditions,
)

NOW = 100_000.0
REQUEST = EvictionRequest(
    reason=EvictionReason.PREEMPTED,
    requested_at=NOW,
    deadline=NOW + 120,
    ask_at=NOW,
    reserved_at=NOW - 1000,
    message="Preempted to accommodate another",
    preemption_reason=PreemptionReason.IN_CLUSTER_QUEUE,
    preemptor=WorkloadKey("team", "large"),
    preemptor_uid="u",
    preempting_cluster_queue="queue",
)


@pytest.mark.parametrize(
    ("since", "want"),
    [
        pytest.param(REQUEST.reserved_at, REQUEST, id="on the quota that it is to give back"),
        pytest.param(REQUEST.reserved_at + 1, None, id="on quota that it got since"),
    ],
)
def test_a_request_holds_for_one_reservation(since: float, want: EvictionRequest | None) -> None:
    asked = make_workload("w", annotations={EVICTION: render_request(REQUEST, namespace="team")})

    assert current_request(reserved(asked, at=since)) == want


@pytest.mark.parametrize(
    ("after", "saved_at", "is_wanted", "ask_after", "want"),
    [
        pytest.param(0, None, True, 0, SaveStage.REQUESTED, id="asked at once"),
        pytest.param(119, None, True, 0, SaveStage.REQUESTED, id="waited for until the deadline"),
        pytest.param(120, None, True, 0, SaveStage.MISSED, id="the deadline came first"),
        pytest.param(30, NOW + 20, True, 0, SaveStage.SAVED, id="a checkpoint came"),
        pytest.param(30, NOW, True, 0, SaveStage.SAVED, id="in the second of the request it counts"),
        pytest.param(30, NOW - 1, True, 0, SaveStage.REQUESTED, id="one from before does not"),
        pytest.param(
            500, NOW + 20, True, 0, SaveStage.SAVED, id="saved in time, though it was looked at too late"
        ),
        pytest.param(30, None, False, 0, SaveStage.CANCELLED, id="the preemptor is gone"),
        pytest.param(
            30, NOW + 20, False, 0, SaveStage.CANCELLED, id="the preemptor is gone, though it saved"
        ),
        pytest.param(500, None, False, 0, SaveStage.CANCELLED, id="the preemptor is gone, though it is late"),
        pytest.param(29, None, True, 30, SaveStage.DEFERRED, id="its own checkpoint is near"),
        pytest.param(30, None, True, 30, SaveStage.REQUESTED, id="its own checkpoint did not come"),
        pytest.param(29, NOW + 20, True, 30, SaveStage.SAVED, id="its own checkpoint came"),
    ],
)
def test_the_stage_follows_from_the_request_and_the_cluster(
    after: float, saved_at: float | None, is_wanted: bool, ask_after: float, want: SaveStage
) -> None:
    request = replace(REQUEST, ask_at=NOW + ask_after)

    assert stage_of(request, saved_at=saved_at, is_wanted=is_wanted, now=NOW + after) is want


def test_time_alone_changes_the_stage_when_pods_are_asked_and_at_the_deadline() -> None:
    request = replace(REQUEST, ask_at=NOW + 30)

    assert next_stage_at(request, now=NOW) == NOW + 30
    assert next_stage_at(request, now=NOW + 30) == NOW + 120
    assert next_stage_at(request, now=NOW + 120) is None


def test_a_request_is_read_as_it_was_written() -> None:
    for request in (REQUEST, replace(REQUEST, ask_at=NOW + 30, preemptor=None, preemption_reason=None)):
        assert read_request(render_request(request, namespace="team")) == request


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("[1]", "must be a JSON object of strings", id="a list"),
        pytest.param('{"reason": 1}', "must be a JSON object of strings", id="a number"),
        pytest.param("{}", "requestedAt is ''", id="without anything"),
        pytest.param('{"requestedAt": "soon"}', "requestedAt is 'soon'", id="no time"),
        pytest.param(
            render_request(REQUEST, namespace="team").replace('"Preempted"', '"Hunger"'),
            "reason is 'Hunger', but must be one of Preempted",
            id="an unknown reason",
        ),
        pytest.param(
            render_request(REQUEST, namespace="team").replace("team/large", "large"),
            "preemptor is 'large', but must be NAMESPACE/NAME",
            id="a preemptor without namespace",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_named(text: str, want: str) -> None:
    with pytest.raises(ValueError, match=want.replace("'", ".")):
        read_request(text)


def running(*, ran: float = 5000, saved: float | None = None, **own: Any) -> Workload:
    """Return a Workload that ran `ran` seconds and saved `saved` seconds ago; `own` are checkpoint keys."""
    facts = {f"berth.dev/checkpoint-{key}-seconds": str(value) for key, value in own.items()}
    if saved is not None:
        facts["berth.dev/checkpoint-time"] = to_rfc3339(NOW - saved)
    return reserved(
        make_workload("victim", gpus=4, annotations=facts, owner_kind="Job", owner_uid="j"), at=NOW - ran
    )


def policy(**section: Any) -> AdmissionPolicy:
    return AdmissionPolicy(name="policy", preemption=PreemptionRules(**section))


@pytest.mark.parametrize(
    ("workload", "section", "slack", "want"),
    [
        pytest.param(running(save=10), {}, 0, SavePlan(deadline=NOW + 120, ask_at=NOW), id="asked at once"),
        pytest.param(running(save=10), {"grace_seconds": 0}, 0, None, id="no grace"),
        pytest.param(running(save=10), {"grace_seconds": 89}, 0, None, id="noticed too late"),
        pytest.param(running(), {}, 0, None, id="says nothing of checkpoints"),
        pytest.param(running(save=121), {}, 0, None, id="takes longer than the grace"),
        pytest.param(running(save=10, ran=9), {}, 0, None, id="has run for less than a save takes"),
        pytest.param(running(save=10, saved=9), {}, 0, None, id="has just saved"),
        pytest.param(
            running(save=10, saved=570, interval=600),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW + 120),
            id="its own checkpoint comes within the grace",
        ),
        pytest.param(
            running(save=10, saved=595, interval=600),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW + 15),
            id="asked where its own does not come and there is time left",
        ),
        pytest.param(
            running(save=10, saved=100, interval=600),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW),
            id="its own checkpoint comes too late",
        ),
        pytest.param(
            running(save=10, saved=100, interval=600),
            {},
            600,
            SavePlan(deadline=NOW + 600, ask_at=NOW + 510),
            id="victims that leave with it take long enough for its own checkpoint",
        ),
        pytest.param(
            running(save=10, saved=580, interval=600),
            {"grace_seconds": 60},
            0,
            SavePlan(deadline=NOW + 60, ask_at=NOW + 60),
            id="its own needs no notice, so that a short grace will do",
        ),
        pytest.param(
            running(save=10, saved=1300, interval=600),
            {},
            600,
            SavePlan(deadline=NOW + 120, ask_at=NOW),
            id="checkpoints that have stopped are not waited for",
        ),
        pytest.param(
            running(save=10, restart=20, saved=580, interval=600, ran=560),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW + 120),
            id="it counts its interval from when it works again",
        ),
        pytest.param(
            running(save=10, saved=570, interval=600, ran=300),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW),
            id="what an earlier attempt saved says nothing of when this one saves",
        ),
        pytest.param(
            running(save=10, restart=20, saved=9000, interval=600, ran=560),
            {},
            0,
            SavePlan(deadline=NOW + 120, ask_at=NOW + 120),
            id="while it waited it could not save and has not stopped to",
        ),
    ],
)
def test_how_an_eviction_waits(
    workload: Workload, section: dict[str, Any], slack: float, want: SavePlan | None
) -> None:
    assert plan_save(workload, policy(**section), now=NOW, slack_seconds=slack) == want


@pytest.mark.parametrize(
    ("fields", "is_asked"),
    [
        pytest.param({"owner_kind": "Pod"}, True, id="a pod that is queued itself"),
        pytest.param(
            {
                "owner_kind": None,
                "owner_uid": None,
                "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            },
            True,
            id="a group of pods",
        ),
        pytest.param({"owner_kind": "RayJob"}, False, id="another controller runs it"),
        pytest.param({"owner_kind": None, "owner_uid": None}, False, id="no controller runs it"),
    ],
)
def test_whose_pods_are_known_is_asked(fields: dict[str, Any], is_asked: bool) -> None:
    victim = running(save=10)
    victim = replace(victim, **{**fields, "annotations": victim.annotations | fields.get("annotations", {})})

    assert (plan_save(victim, policy(), now=NOW) is not None) == is_asked
    waiting = leaving_seconds(victim, policy()) - leaving_seconds(victim, policy(grace_seconds=0))
    assert waiting == (120 if is_asked else 0)


def test_without_a_policy_no_save_is_waited_for() -> None:
    assert plan_save(running(save=10), AdmissionPolicy(name=""), now=NOW) is None


def test_an_eviction_takes_as_long_as_waiting_and_stopping() -> None:
    stopping = leaving_seconds(running(), policy())

    assert leaving_seconds(running(save=10), policy()) == stopping + 120
    assert leaving_seconds(running(save=10), policy(grace_seconds=0)) == stopping


ASKED = replace(
    running(),
    annotations={
        "berth.dev/eviction": render_request(replace(REQUEST, reserved_at=NOW - 5000), namespace="team")
    },
)
EVICTED = make_condition("Evicted", reason="Preempted")


@pytest.mark.parametrize(
    ("before", "after", "saved_at", "want"),
    [
        pytest.param(running(), ASKED, None, SaveOutcome.REQUESTED, id="asked"),
        pytest.param(ASKED, ASKED, None, None, id="nothing new"),
        pytest.param(ASKED, with_conditions(ASKED, EVICTED), NOW + 9, SaveOutcome.KEPT, id="saved"),
        pytest.param(ASKED, with_conditions(ASKED, EVICTED), None, SaveOutcome.MISSED, id="did not save"),
        pytest.param(ASKED, with_conditions(ASKED, EVICTED), NOW - 9, SaveOutcome.MISSED, id="saved before"),
        pytest.param(
            ASKED,
            with_conditions(ASKED, make_condition("Evicted", reason="Deactivated")),
            None,
            SaveOutcome.CANCELLED,
            id="stopped for something else",
        ),
        pytest.param(ASKED, running(), None, SaveOutcome.CANCELLED, id="taken back"),
        pytest.param(ASKED, finished(ASKED), NOW + 9, SaveOutcome.CANCELLED, id="it ended by itself"),
        pytest.param(released(ASKED), ASKED, None, SaveOutcome.REQUESTED, id="asked again"),
    ],
)
def test_what_has_come_of_a_request(
    before: Workload, after: Workload, saved_at: float | None, want: SaveOutcome | None
) -> None:
    assert outcome_of(before, after, saved_at=saved_at) is want


def at_sigterm(*, grace: int | None = None, **own: Any) -> Workload:
    """Return a running Workload that says it saves at SIGTERM, and by default that it takes ten seconds."""
    victim = running(**{"save": 10, **own})
    spec = WirePodSpec(termination_grace_period_seconds=grace)
    pods = tuple(replace(one, template=WirePodTemplate(spec=spec)) for one in victim.pod_sets)
    annotations = {**victim.annotations, "berth.dev/checkpoint-on-sigterm": "true"}
    return replace(victim, annotations=annotations, pod_sets=pods)


def beside(workload: Workload, *, count: int, admitted: int | None = None, done: int = 0) -> Workload:
    """Return the Workload with a second pod set whose pods are killed at once: `count` asked for, `admitted`
    admitted where that is another number, and `done` done.
    """
    spec = WirePodSpec(termination_grace_period_seconds=0)
    helper = make_pod_set("helper", count=count, template=WirePodTemplate(spec=spec))
    assert workload.admission is not None
    counted = PodSetAssignment(
        name="helper", count=count if admitted is None else admitted, flavors={}, usage={}
    )
    admission = replace(workload.admission, pod_sets=(*workload.admission.pod_sets, counted))
    pod_sets = (*workload.pod_sets, helper)
    return replace(workload, pod_sets=pod_sets, admission=admission, reclaimable={"helper": done})


def saying(workload: Workload, **annotations: str) -> Workload:
    own = {f"berth.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return replace(workload, annotations={**workload.annotations, **own})


MEASURED = '{"save": [40, 40, 40]}'


@pytest.mark.parametrize(
    ("workload", "waits"),
    [
        pytest.param(at_sigterm(), 0, id="its save fits the default grace"),
        pytest.param(at_sigterm(save=30), 0, id="its save takes all of the grace"),
        pytest.param(at_sigterm(save=31), 120, id="its save takes longer than the grace"),
        pytest.param(at_sigterm(save=31, grace=300), 0, id="its pods have a longer grace"),
        pytest.param(at_sigterm(grace=0), 120, id="its pods are killed at once"),
        pytest.param(beside(at_sigterm(), count=1), 120, id="another of its pods is killed at once"),
        pytest.param(beside(at_sigterm(), count=0), 0, id="a template without pods kills none"),
        pytest.param(beside(at_sigterm(), count=2, admitted=0), 0, id="a template was admitted without pods"),
        pytest.param(beside(at_sigterm(), count=2, done=2), 0, id="all pods of a template are done"),
        pytest.param(
            saying(at_sigterm(), checkpoint_measured=MEASURED), 120, id="it was measured to take longer"
        ),
        pytest.param(saying(at_sigterm(), checkpoint_on_sigterm="false"), 120, id="it says that it does not"),
        pytest.param(
            saying(at_sigterm(), checkpoint_on_sigterm="yes"), 120, id="what it says cannot be read"
        ),
        pytest.param(
            saying(running(saved=1000), checkpoint_on_sigterm="true"), 120, id="how long is unknown"
        ),
        pytest.param(saying(at_sigterm(), workload_type="inference"), 0, id="inference keeps no progress"),
        pytest.param(at_sigterm(saved=570, interval=600), 0, id="its own checkpoint is near"),
    ],
)
def test_a_workload_that_saves_at_sigterm_is_evicted_without_a_wait(workload: Workload, waits: int) -> None:
    """Neither asked nor left to its own checkpoint: it goes at once, and its pods take their grace."""
    plan = plan_save(workload, policy(), now=NOW)

    assert (plan.deadline - NOW if plan is not None else 0) == waits
    stopping = leaving_seconds(workload, policy(grace_seconds=0))
    assert leaving_seconds(workload, policy()) == stopping + waits


STOPPING = with_conditions(at_sigterm(), make_condition("Evicted", reason="Preempted", at=NOW))


@pytest.mark.parametrize(
    ("before", "saved_at", "want"),
    [
        pytest.param(STOPPING, NOW + 9, SaveOutcome.KEPT, id="saved on the way out"),
        pytest.param(STOPPING, NOW, SaveOutcome.KEPT, id="saved in the second of its eviction"),
        pytest.param(STOPPING, NOW - 1, SaveOutcome.MISSED, id="saved before"),
        pytest.param(STOPPING, None, SaveOutcome.MISSED, id="reported none"),
        pytest.param(
            with_conditions(running(save=10), EVICTED), NOW + 9, None, id="it does not save at SIGTERM"
        ),
        pytest.param(
            with_conditions(at_sigterm(), make_condition("Evicted", reason="NodeFailures")),
            None,
            None,
            id="its nodes are gone",
        ),
        pytest.param(at_sigterm(), NOW + 9, None, id="it was not evicted"),
        pytest.param(finished(STOPPING), NOW + 9, None, id="it had come to its end"),
    ],
)
def test_what_has_come_of_sigterm(before: Workload, saved_at: float | None, want: SaveOutcome | None) -> None:
    after = replace(released(before, at=NOW + 20), admission=None)

    assert outcome_of_stop(before, after, saved_at=saved_at) is want
    # Only once: neither while its pods end, nor afterwards.
    assert outcome_of_stop(before, before, saved_at=saved_at) is None
    assert outcome_of_stop(after, after, saved_at=saved_at) is None
