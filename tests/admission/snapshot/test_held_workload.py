"""What is known of a Workload that holds quota: by its object, or as decided and not seen in it yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.snapshot.held_workload import HeldWorkload
from api.keys import CHECKPOINT_TIME
from api.workload import Admission, Workload, WorkloadKey
from tests.builders import NAMESPACE, make_condition, make_workload, with_conditions

EVICTED = make_condition("Evicted", reason="Preempted")
ADMITTED = make_condition("Admitted")


def make_held(workload: Workload | None = None, **fields: Any) -> HeldWorkload:
    known: dict[str, Any] = {
        "workload": workload or make_workload(),
        "admission": Admission(cluster_queue="queue", pod_sets=()),
        "usage": {},
        "is_assumed": False,
        "reserved_at": 0.0,
        "queued_at": 0.0,
        "pairs": frozenset(),
    }
    return HeldWorkload(**known | fields)


@pytest.mark.parametrize(
    ("condition", "fields", "want"),
    [
        pytest.param(None, {}, False, id="nothing says so"),
        pytest.param(EVICTED, {}, True, id="its object says so"),
        pytest.param(make_condition("Evicted", False), {}, False, id="its object says that this is over"),
        pytest.param(EVICTED, {"is_assumed": True}, False, id="its object says so of an earlier admission"),
        pytest.param(None, {"is_evicting": True}, True, id="it was decided"),
        pytest.param(None, {"is_saving": True}, True, id="it saves a checkpoint before that"),
        pytest.param(None, {"is_evicting": True, "is_assumed": True}, True, id="it was decided at once"),
    ],
)
def test_it_counts_as_evicted_where(condition: Any, fields: dict[str, Any], want: bool) -> None:
    workload = make_workload() if condition is None else with_conditions(make_workload(), condition)

    assert make_held(workload, **fields).is_evicted is want


@pytest.mark.parametrize(
    ("conditions", "is_assumed", "want"),
    [
        pytest.param((ADMITTED,), False, True, id="its object says that it is admitted"),
        pytest.param((), False, False, id="its checks are not ready yet"),
        pytest.param((make_condition("Admitted", False),), False, False, id="it is not admitted any more"),
        pytest.param((ADMITTED,), True, False, id="its object shows an earlier admission"),
    ],
)
def test_its_job_may_run_where(conditions: tuple[Any, ...], is_assumed: bool, want: bool) -> None:
    held = make_held(with_conditions(make_workload(), *conditions), is_assumed=is_assumed)

    assert held.is_admitted is want


def test_it_is_known_by_its_key_and_by_its_local_queue() -> None:
    held = make_held(make_workload("name", queue="lq"))

    assert (held.key, held.local_queue) == (WorkloadKey(NAMESPACE, "name"), (NAMESPACE, "lq"))


def test_its_checkpoints_are_read_once_for_each_version_of_its_object() -> None:
    held = make_held(make_workload(annotations={CHECKPOINT_TIME: "2027-01-15T08:00:00Z"}))
    first = held.facts()

    assert held.facts() is first
    assert held.facts(with_aliases=True) is not first
    assert held.facts(with_aliases=True) is held.facts(with_aliases=True)

    held.workload = replace(held.workload, annotations={CHECKPOINT_TIME: "2027-01-15T09:00:00Z"})

    assert held.facts() is not first
    assert held.facts() != first


@pytest.mark.parametrize("with_aliases", [True, False])
def test_its_type_is_read_by_an_alias_where_its_policy_reads_them(with_aliases: bool) -> None:
    held = make_held(make_workload(annotations={"workload-type": "inference"}))

    assert held.facts(with_aliases=with_aliases).is_inference is with_aliases
