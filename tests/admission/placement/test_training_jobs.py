"""What is remembered of training jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.placement.training_jobs import EXPECTED_SECONDS, TrainingJob, TrainingJobs
from api.wire.extender import NodeLabels

JOB = TrainingJob("team", "j")
LABELS = {"a": NodeLabels(fabric="f1"), "b": NodeLabels(fabric="f2"), "bare": NodeLabels()}

_PODS = st.tuples(st.just("team"), st.sampled_from("pqr"))
_JOBS = st.sampled_from([JOB, TrainingJob("team", "k")])
_PLACINGS = st.tuples(_PODS, _JOBS, st.sampled_from(["a", "b", "bare", None]))


@given(st.lists(_PLACINGS, max_size=30))
def test_a_job_is_where_its_pods_were_last_seen(
    placings: list[tuple[tuple[str, str], TrainingJob, str | None]],
) -> None:
    jobs = TrainingJobs()
    last: dict[tuple[str, str], tuple[TrainingJob, str]] = {}
    for pod, job, node in placings:
        if node is None:
            jobs.remove(pod)
            last.pop(pod, None)
        else:
            jobs.place(pod, job, node)
            last[pod] = (job, node)
        jobs.validate()

    for job in (JOB, TrainingJob("team", "k")):
        nodes = {node for of, node in last.values() if of == job}
        assert jobs.fabrics(job, LABELS) == {LABELS[node].fabric for node in nodes} - {""}
    assert [job for job, _ in jobs] == sorted({job for job, _ in last.values()})


def test_a_node_that_is_gone_is_in_no_fabric() -> None:
    jobs = TrainingJobs()
    jobs.place(("team", "p"), JOB, "gone")

    assert jobs.fabrics(JOB, LABELS) == frozenset()


def test_an_expectation_ends_by_itself() -> None:
    jobs = TrainingJobs()
    jobs.expect(JOB, "f1", now=100.0)

    assert jobs.expected(JOB, now=100.0 + EXPECTED_SECONDS - 1) == "f1"
    assert jobs.expected(JOB, now=100.0 + EXPECTED_SECONDS) == ""


def test_an_expectation_ends_when_a_pod_is_placed() -> None:
    jobs = TrainingJobs()
    jobs.expect(JOB, "f1", now=100.0)
    jobs.place(("team", "p"), JOB, "bare")

    assert jobs.expected(JOB, now=100.0) == ""
