"""A Job as a value, its Workload, and the messages for a Job that cannot be queued."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api.jobs.job import ComposeError, Job, index_count, to_job
from api.jobs.job_workload import (
    MOST_UNKNOWN_KEYS,
    CopiedKeys,
    Priority,
    is_equivalent,
    is_up_to_date,
    pod_sets_body,
    unknown_keys,
    workload_body,
    workload_name,
)
from api.jobs.pod_template import has_same_directives
from api.objects.cluster import JobObject

# The label that the API server adds and that a Workload keeps.
JOB_NAME = "batch.kubernetes.io/job-name"
UID = "5ff915da-2bc6-43a1-a13b-1a78cc822c89"


def make_job(**fields: Any) -> Job:
    """Return a suspended Job of four pods in queue lq."""
    labels = {"kueue.x-k8s.io/queue-name": "lq", **fields.pop("labels", {})}
    fixed = {"namespace": "team", "name": "j", "uid": UID, "is_suspended": True, "parallelism": 4}
    return Job(**{**fixed, "labels": labels, **fields})


def make_template(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod template of one container."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"labels": {JOB_NAME: "j"}, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def make_body(job: Job, template: dict[str, Any]) -> dict[str, Any]:
    """Return the object of a Job."""
    spec = {"parallelism": job.parallelism, "completions": job.completions, "template": template}
    metadata = {"labels": dict(job.labels), "annotations": dict(job.annotations)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def read(**fields: Any) -> Job:
    """Return a Job as translated from the wire."""
    body = {"metadata": {"name": "j", "namespace": "team", "uid": UID}, **fields}
    return to_job(msgspec.json.decode(msgspec.json.encode(body), type=JobObject))


def test_a_bare_job_has_the_defaults_of_kubernetes() -> None:
    job = read()

    assert (job.parallelism, job.completions, job.is_suspended, job.outcome) == (1, None, False, None)
    assert str(job) == "team/j"


def test_indexes_that_failed_for_good_are_done_as_well_as_completed_ones() -> None:
    job = read(status={"completedIndexes": "0-2", "failedIndexes": "4"})

    assert job.terminal_indexes == 4


@pytest.mark.parametrize(
    ("managed_by", "want"),
    [
        pytest.param(None, False, id="no name is the built-in controller"),
        pytest.param("kubernetes.io/job-controller", False, id="and so is its own"),
        pytest.param("example.com/other", True, id="another name is another controller"),
    ],
)
def test_another_controller_runs_the_job(managed_by: str | None, want: bool) -> None:
    assert read(spec={"managedBy": managed_by}).has_foreign_controller is want


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([], None, id="a Job without conditions runs"),
        pytest.param(
            [("SuccessCriteriaMet", "True")], None, id="to have met the criteria is not yet the end"
        ),
        pytest.param([("Complete", "True")], (True, "why"), id="a complete Job succeeded"),
        pytest.param([("Failed", "True")], (False, "why"), id="a failed Job failed"),
        pytest.param([("Failed", "False")], None, id="a False condition says nothing"),
    ],
)
def test_how_a_job_ended(conditions: list[tuple[str, str]], want: tuple[bool, str] | None) -> None:
    wire = [{"type": type_, "status": status, "message": "why"} for type_, status in conditions]

    outcome = read(status={"conditions": wire}).outcome

    assert (outcome and (outcome.is_success, outcome.message)) == want


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        pytest.param((None, None), 0, id="none"),
        pytest.param(("0-3,7", None), 5, id="an interval and a single one"),
        pytest.param(("0-3", "2-5"), 6, id="what both name counts once"),
        pytest.param(("0-99999", ""), 100_000, id="large intervals are not counted one by one"),
        pytest.param(("x,1-,3", None), 2, id="what is no interval is left out"),
    ],
)
def test_completion_indexes_are_counted(texts: tuple[str | None, ...], want: int) -> None:
    assert index_count(texts) == want


def test_indexes_that_a_job_with_fewer_completions_has_no_more_do_not_count() -> None:
    assert index_count(("0-3,7", "2,8-9"), below=3) == 3


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"completions": 8, "succeeded": 2}, 0, id="as long as all pods are needed, nothing"),
        pytest.param({"completions": 8, "succeeded": 6}, 2, id="what the rest of the work leaves idle"),
        pytest.param({"completions": 4, "succeeded": 4}, 4, id="everything at the end"),
        pytest.param({"completions": 2, "succeeded": 1}, 1, id="never more than the pods that run at once"),
        pytest.param({"succeeded": 1}, 1, id="a work queue winds down with its first success"),
        pytest.param(
            {"completions": 4, "is_indexed": True, "succeeded": 1, "terminal_indexes": 3},
            3,
            id="failed indexes are done too",
        ),
        pytest.param(
            {"parallelism": 1, "completions": 1, "succeeded": 1}, 0, id="one pod gives nothing back"
        ),
    ],
)
def test_pods_whose_quota_is_not_needed_again(fields: dict[str, Any], want: int) -> None:
    assert make_job(**fields).reclaimable_pods == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"ready": 3}, False, id="three of four"),
        pytest.param({"ready": 2, "succeeded": 1, "uncounted_succeeded": 1}, True, id="ended ones count"),
        pytest.param({"ready": 2, "completions": 2}, True, id="no more than are to be completed"),
    ],
)
def test_pods_are_ready(fields: dict[str, Any], want: bool) -> None:
    assert make_job(**fields).has_pods_ready is want


def test_a_workload_is_named_as_kueue_names_it() -> None:
    assert workload_name("StatefulSet", "apps", "umb-wkb", UID) == "statefulset-umb-wkb-89877"


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (workload_name("Job", "batch", "x" * 250 + end, UID) for end in ("a", "b"))

    assert len(one) == 253
    assert one[:247] == other[:247]
    assert one != other


def test_a_workload_has_no_label_that_only_pods_of_its_job_have() -> None:
    job, template = make_job(), make_template()
    template["metadata"]["labels"] |= {
        "job-name": "j",
        "controller-uid": UID,
        "batch.kubernetes.io/controller-uid": UID,
    }

    (pod_set,) = workload_body(job, make_body(job, template), Priority(value=0))["spec"]["podSets"]

    assert pod_set["template"] == make_template()
    assert has_same_directives(template, pod_set["template"], is_complete=True)


def test_a_workload_is_complete() -> None:
    job = make_job(
        labels={"team": "a", "kueue.x-k8s.io/max-exec-time-seconds": "60", "berth.dev/opportunistic": "true"},
        annotations={
            "kueue.x-k8s.io/admission-gated-by": "example.com/gate",
            "kueue.x-k8s.io/job-min-parallelism": "2",
            "provreq.kueue.x-k8s.io/ValidUntilSeconds": "5",
            "berth.dev/checkpoint-time": "2027-01-01T00:00:00Z",
            "berth.dev/submitter": "ann",
            "other": "x",
        },
    )
    priority = Priority(
        value=7, class_group="kueue.x-k8s.io", class_kind="WorkloadPriorityClass", class_name="p"
    )

    body = workload_body(
        job, make_body(job, make_template()), priority, copied=CopiedKeys(labels=("team", "absent"))
    )

    assert body["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/job-uid": UID}
    assert body["metadata"]["annotations"] == {
        "berth.dev/opportunistic": "true",
        "kueue.x-k8s.io/admission-gated-by": "example.com/gate",
        "provreq.kueue.x-k8s.io/ValidUntilSeconds": "5",
        "berth.dev/submitter": "ann",
    }
    assert body["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (UID, True)
    assert body["spec"] == {
        "active": True,
        "podSets": [{"name": "main", "count": 4, "minCount": 2, "template": make_template()}],
        "priority": 7,
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"},
        "queueName": "lq",
        "maximumExecutionTimeSeconds": 60,
    }


def test_a_job_without_class_or_queue_leaves_both_out() -> None:
    job = replace(make_job(), labels={})

    spec = workload_body(job, make_body(job, make_template()), Priority())["spec"]

    assert (spec["priority"], "priorityClassRef" in spec, "queueName" in spec) == (0, False, False)


LEVEL = "topology.kubernetes.io/rack"
INDEX = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, None, id="nothing asked"),
        pytest.param({"podset-required-topology": LEVEL}, {"required": LEVEL}, id="one domain"),
        pytest.param(
            {"podset-preferred-topology": LEVEL}, {"preferred": LEVEL}, id="one domain, if it can be"
        ),
        pytest.param({"podset-unconstrained-topology": "true"}, {"unconstrained": True}, id="any nodes"),
        pytest.param({"podset-unconstrained-topology": "false"}, None, id="false asks for nothing"),
        pytest.param(
            {"podset-slice-required-topology": LEVEL, "podset-slice-size": "2"},
            {"podSetSliceRequiredTopology": LEVEL, "podSetSliceSize": 2},
            id="slices alone",
        ),
        pytest.param(
            {"podset-slice-required-topology-constraints": '[{"topology": "a", "size": 2}]'},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 2}]},
            id="slices in layers",
        ),
    ],
)
def test_topology_annotations_become_a_request(
    annotations: dict[str, str], want: dict[str, Any] | None
) -> None:
    template = make_template({f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()})

    (pod_set,) = pod_sets_body(make_job(), make_body(make_job(), template))

    assert pod_set.get("topologyRequest") == (None if want is None else {**want, **INDEX})


def resources(**requests: Any) -> dict[str, Any]:
    """Return a pod spec's containers with these requests."""
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("job", "template", "want"),
    [
        pytest.param(
            make_job(parallelism=0),
            make_template(),
            "spec.parallelism is 0: it asks for no pods; set it to 1 or more",
            id="a Job of no pods",
        ),
        pytest.param(
            make_job(completions=0),
            make_template(),
            "spec.completions is 0: it asks for no pods; set it to 1 or more",
            id="a Job that completes nothing",
        ),
        pytest.param(
            make_job(),
            make_template(**resources(cpu="1 core")),
            "spec.template.spec.containers[c].resources.requests[cpu]: '1 core' is not a quantity: expected a"
            ' number with an optional suffix, such as "500m", "2", "1.5Gi" or "1e3"',
            id="no quantity",
        ),
        pytest.param(
            make_job(),
            make_template(**resources(memory="-1Gi")),
            "spec.template.spec.containers[c].resources.requests[memory] is '-1Gi': a quantity cannot be"
            " negative",
            id="a negative quantity",
        ),
        pytest.param(
            make_job(),
            make_template(**resources(pods=1)),
            "spec.template.spec.containers[c].resources.requests[pods] is 1: the resource pods is counted"
            " automatically; remove it",
            id="pods as a resource",
        ),
        pytest.param(
            make_job(),
            make_template(containers=[]),
            "spec.template.spec.containers is empty: a pod needs at least one container",
            id="no container",
        ),
        pytest.param(
            make_job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "1h"}),
            make_template({"kueue.x-k8s.io/podset-unconstrained-topology": "yes"}),
            'metadata.labels[kueue.x-k8s.io/max-exec-time-seconds] is "1h": must be a whole number of seconds'
            " above 0; spec.template.metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology] is"
            ' "yes": must be true or false',
            id="labels and annotations, all faults at once",
        ),
    ],
)
def test_a_job_that_cannot_be_queued_is_refused_with_field_value_and_fix(
    job: Job, template: dict[str, Any], want: str
) -> None:
    with pytest.raises(ComposeError) as refused:
        workload_body(job, make_body(job, template), Priority())

    assert str(refused.value) == want


def test_a_misspelt_key_is_reported_with_the_nearest_one() -> None:
    job = make_job(
        annotations={"berth.dev/expected-runtime-second": "60", "berth.dev/simulated-exit-code": "1"}
    )
    template = make_template({"berth.dev/zzz": "1", "berth.dev/checkpoint-time": "x"})

    assert unknown_keys(job, template) == (
        "The annotation 'berth.dev/expected-runtime-second' is unknown and has no effect;"
        " did you mean 'berth.dev/expected-runtime-seconds'?",
        "The pod template's annotation 'berth.dev/zzz' is unknown and has no effect;"
        " see the documentation for the known ones",
    )


def test_of_thousands_of_unknown_keys_the_first_are_reported_and_the_rest_are_counted() -> None:
    job = make_job(annotations={f"berth.dev/{n}": "" for n in range(5000)})

    reported = unknown_keys(job, make_template())

    assert len(reported) == MOST_UNKNOWN_KEYS + 1
    assert "'berth.dev/9'" in reported[MOST_UNKNOWN_KEYS - 1]
    assert reported[-1] == "4990 more keys of berth.dev/ are unknown"


@pytest.mark.parametrize(
    ("job", "template", "admitted", "want"),
    [
        pytest.param(make_job(), make_template(), None, True, id="the same"),
        pytest.param(
            make_job(), make_template(**resources(cpu="1000m")), None, False, id="another container image"
        ),
        pytest.param(
            make_job(),
            make_template(
                containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}]
            ),
            None,
            True,
            id="the same quantity in other words",
        ),
        pytest.param(make_job(parallelism=3), make_template(), None, False, id="fewer pods"),
        pytest.param(
            make_job(parallelism=3, is_suspended=False), make_template(), 3, True, id="as many as admitted"
        ),
        pytest.param(
            make_job(is_suspended=False),
            make_template(),
            3,
            False,
            id="a running Job with more than admitted",
        ),
        pytest.param(make_job(), make_template(), 3, True, id="a suspended Job with what it asks for"),
        pytest.param(
            make_job(), make_template(tolerations=[{"key": "t"}]), None, False, id="another toleration"
        ),
        pytest.param(
            make_job(), make_template(tolerations=[{"key": "t"}]), 4, True, id="tolerations of a flavor"
        ),
        pytest.param(
            make_job(annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}),
            make_template(),
            None,
            False,
            id="another floor",
        ),
    ],
)
def test_a_workload_still_describes_its_job(
    job: Job, template: dict[str, Any], admitted: int | None, want: bool
) -> None:
    pod_set = {"name": "main", "count": 4, "template": make_template()}

    assert is_equivalent(job, template, pod_set, admitted_count=admitted) is want


@pytest.mark.parametrize(
    ("template", "want"),
    [
        pytest.param(make_template(), True, id="the same"),
        pytest.param(make_template(nodeSelector={"a": "b"}), False, id="another node selector"),
        pytest.param(make_template({"note": "x"}), False, id="another annotation"),
        pytest.param(
            make_template({"kueue.x-k8s.io/podset-required-topology": LEVEL}), False, id="another topology"
        ),
        pytest.param(
            make_template(affinity={"podAntiAffinity": {"new": 1}}), True, id="affinity that binds no node"
        ),
        pytest.param(make_template(containers=[]), True, id="what cannot be queued is not taken over"),
    ],
)
def test_an_edit_of_a_waiting_job_is_noticed(template: dict[str, Any], want: bool) -> None:
    (pod_set,) = pod_sets_body(make_job(), make_body(make_job(), make_template()))

    assert is_up_to_date(make_job(), make_body(make_job(), template), pod_set) is want
