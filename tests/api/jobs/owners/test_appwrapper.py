"""The row of AppWrapper: where the pods of its components are, what a start adds, and what is its own."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.job import ComposeError
from api.jobs.owners.appwrapper import APP_WRAPPER, outcome
from api.jobs.owners.composing import read_pod_sets
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.kubeflow import PYTORCH_JOB
from api.jobs.owners.owner import counts
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB
from api.jobs.owners.row import Child, OwnerKind
from api.jobs.pod_template import StartConflict
from tests.owners import SAMPLES, condition, template

Object = dict[str, Any]


def sample_object(row: OwnerKind) -> Object:
    """Return the sample of a kind."""
    (found,) = (one for one in SAMPLES if one.row is row)
    return found.object()


def wrapping(*components: Object, **status: Any) -> Object:
    """Return an AppWrapper j of these components."""
    return {
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "components": list(components)},
        "status": status,
    }


def of_apps(kind: str, **spec: Any) -> Object:
    """Return a Deployment or StatefulSet."""
    return {"apiVersion": "apps/v1", "kind": kind, "spec": {"template": template("web"), **spec}}


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, **template("p")}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(of_apps("Deployment", replicas=4), [4], id="a Deployment"),
        pytest.param(of_apps("StatefulSet"), [1], id="a StatefulSet without replicas"),
        pytest.param(POD, [1], id="a Pod"),
        pytest.param(sample_object(JOB_SET), [1, 6], id="a JobSet"),
        pytest.param(sample_object(PYTORCH_JOB), [1, 2], id="a PyTorchJob"),
        pytest.param(sample_object(RAY_CLUSTER), [1, 2, 1], id="a RayCluster"),
        pytest.param(sample_object(RAY_JOB), [1, 2, 1], id="a RayJob, whose submitter is not known"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "data": {}}, [], id="what has no pods"),
    ],
)
def test_pods_of_known_kinds_are_found(obj: Object, want: list[int]) -> None:
    assert [one.count for one in APP_WRAPPER.pod_sets(wrapping({"template": obj}))] == want


def test_pod_sets_are_numbered_through_all_components_and_lie_within_them() -> None:
    deployment, jobs = of_apps("Deployment"), sample_object(JOB_SET)
    found = APP_WRAPPER.pod_sets(wrapping({"template": deployment}, {"template": jobs}))

    assert [(one.name, one.at[:4]) for one in found] == [
        ("j-0", ("spec", "components", 0, "template")),
        ("j-1", ("spec", "components", 1, "template")),
        ("j-2", ("spec", "components", 1, "template")),
    ]


def test_ranks_are_those_of_the_declaration() -> None:
    prefix = "workload.codeflare.dev.appwrapper/tas-"
    annotations = {f"{prefix}pod-index-label": "rank", f"{prefix}sub-group-index-label": "group"}
    declared = {
        "path": "template.spec.template",
        "annotations": {**annotations, f"{prefix}sub-group-count": "2"},
    }
    (one,) = APP_WRAPPER.pod_sets(wrapping({"template": of_apps("Deployment"), "podSets": [declared]}))

    assert (one.index_label, one.group_label, one.groups, one.count) == ("rank", "group", 2, 1)


def test_what_the_controller_has_begun_with_comes_before_the_declaration() -> None:
    component = {"template": of_apps("Deployment", replicas=4)}
    status = [{"podSets": [{"path": "template.spec.template", "replicas": 2}]}]

    (one,) = APP_WRAPPER.pod_sets(wrapping(component, componentStatus=status))
    assert one.count == 2


@pytest.mark.parametrize("path", ["spec.template", "template.spec[x]", "template..spec", "template.other"])
def test_a_path_that_leads_nowhere_is_named(path: str) -> None:
    body = wrapping({"template": of_apps("Deployment"), "podSets": [{"path": path}]})

    with pytest.raises(ComposeError, match="its pod sets cannot be read"):
        read_pod_sets(APP_WRAPPER, body)


# --- what a start adds ----------------------------------------------------------------------------


def started(body: Object, index: int, **spec: Any) -> Object:
    """Return the AppWrapper with a pod set whose template has more in its spec."""
    one = APP_WRAPPER.pod_sets(body)[index]
    changed = {**one.template, "spec": {**one.template["spec"], **spec}}
    return dict(APP_WRAPPER.with_template(body, one, changed))


def test_what_is_added_stands_beside_the_component_in_the_place_of_its_pod_set() -> None:
    body = wrapping({"template": sample_object(JOB_SET)})
    toleration = {"key": "gpu", "operator": "Exists"}
    own = [{"key": "own", "operator": "Exists"}]
    changed = started(body, 1, tolerations=[*own, toleration], nodeSelector={"disk": "ssd", "zone": "a"})

    (component,) = changed["spec"]["components"]
    assert component["podSetInfos"] == [{}, {"nodeSelector": {"zone": "a"}, "tolerations": [toleration]}]
    assert component["template"] == body["spec"]["components"][0]["template"]
    assert APP_WRAPPER.pod_sets(changed)[1].template["spec"]["nodeSelector"] == {"disk": "ssd", "zone": "a"}


def test_nothing_stays_beside_a_component_whose_templates_are_as_they_were() -> None:
    body = wrapping({"template": sample_object(JOB_SET)})
    changed = started(body, 1, nodeSelector={"disk": "ssd", "zone": "a"})

    assert started(changed, 1, nodeSelector={"disk": "ssd"}) == body


def test_an_affinity_cannot_be_added() -> None:
    with pytest.raises(StartConflict, match="affinity of pod set j-0"):
        started(wrapping({"template": of_apps("Deployment")}), 0, affinity={"nodeAffinity": {}})


# --- status and children --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"phase": "Running"}, None, id="it runs"),
        pytest.param({"phase": "Succeeded"}, True, id="it succeeded"),
        pytest.param({"phase": "Failed"}, False, id="it failed"),
        pytest.param(
            {"phase": "Failed", "conditions": [condition("ResourcesDeployed")]},
            None,
            id="it failed, and its objects are still being deleted",
        ),
    ],
)
def test_when_it_has_ended(status: Object, want: bool | None) -> None:
    found = outcome(wrapping(**status))

    assert (None if found is None else found.is_success) is want


def job(name: str = "work", pods: int = 2, cpu: str = "1", kind: str = "Job") -> Child:
    """Return a Job of so many pods."""
    spec = {"parallelism": pods, "completions": pods, "template": template("work", cpu)}
    return Child(kind=kind, name=name, body={"spec": spec})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(job(), True, id="the Job of the component"),
        pytest.param(job(pods=1), True, id="with fewer pods"),
        pytest.param(job(pods=3), False, id="with more pods"),
        pytest.param(job(cpu="2"), False, id="whose pods request more"),
        pytest.param(job("other"), False, id="of another name"),
        pytest.param(job(kind="JobSet"), False, id="of another kind"),
        pytest.param(Child(kind="Job", name="work", body={}), False, id="that cannot be read"),
        pytest.param(Child(kind="Server", name="server", body={}), False, id="of a kind without known pods"),
    ],
)
def test_an_object_is_counted_if_it_may_come_from_a_component(one: Child, want: bool) -> None:
    assert counts(APP_WRAPPER, sample_object(APP_WRAPPER), one) is want
