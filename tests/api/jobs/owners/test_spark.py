"""The row of SparkApplication: its pods from its fields, what a start writes there, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.job import ComposeError
from api.jobs.owners.composing import check_owner
from api.jobs.owners.owner import counts
from api.jobs.owners.patches import restore_patch_of, start_patch
from api.jobs.owners.paths import merged, replaced, value_at
from api.jobs.owners.row import Child
from api.jobs.owners.rules import validate_owner
from api.jobs.owners.spark import SPARK_APPLICATION
from api.jobs.pod_template import Injection
from tests.owners import SAMPLES

Object = dict[str, Any]


def application(**fields: Any) -> Object:
    """Return the sample, with other values at these paths, whose steps are parted by `__`."""
    (sample,) = (one for one in SAMPLES if one.row is SPARK_APPLICATION)
    body = sample.object()
    for path, value in {"driver__memory": "512m", **fields}.items():
        body = replaced(body, ("spec", *path.split("__")), value)
    return body


def container(body: Object, role: str = "driver") -> Object:
    """Return Spark's own container of a role, as the Workload has it."""
    (found,) = (one for one in SPARK_APPLICATION.pod_sets(body) if one.name == role)
    return dict(found.template["spec"]["containers"][0])


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, {"requests": {"cpu": "1", "memory": "512Mi"}}, id="requests"),
        pytest.param(
            {"driver__memory": "2G", "driver__memoryLimit": "3gb", "driver__coreLimit": "1500m"},
            {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1500m", "memory": "3Gi"}},
            id="limits, in any of Java's units",
        ),
        pytest.param(
            {"driver__gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "driver__memory": "1Gi"},
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}},
            id="GPUs, and memory in Kubernetes' own notation",
        ),
        pytest.param(
            {"driver__coreRequest": None, "driver__cores": 4, "driver__memory": None},
            {},
            id="no requests where it has none, whatever cores says, as in Kueue",
        ),
    ],
)
def test_a_role_requests_what_its_fields_say(fields: Object, want: Object) -> None:
    found = container(application(**fields))

    assert (found["name"], found["resources"]) == ("spark-kubernetes-driver", want)


def test_an_application_without_executors_has_none() -> None:
    body = application(executor__instances=None)

    assert {one.name: one.count for one in SPARK_APPLICATION.pod_sets(body)} == {"driver": 1, "executor": 0}


def test_sidecars_and_first_steps_are_counted() -> None:
    extra = [{"name": "proxy", "resources": {"requests": {"cpu": "2"}}}]
    body = application(driver__sidecars=extra, driver__initContainers=extra)

    spec = SPARK_APPLICATION.pod_sets(body)[0].template["spec"]
    assert [one["name"] for one in spec["containers"]] == ["spark-kubernetes-driver", "proxy"]
    assert spec["initContainers"] == extra


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param(
            {"mode": "client"},
            'spec.mode is "client": only Cluster mode is supported',
            id="client mode",
        ),
        pytest.param(
            {"dynamicAllocation": {"enabled": True}},
            "spec.dynamicAllocation.enabled is true: not supported",
            id="executors that come and go",
        ),
        pytest.param(
            {"driver__template": {"spec": {"containers": [{"name": "proxy"}, {"name": "executor"}]}}},
            'spec.driver.template.spec.containers[0].name is "proxy": its Workload does not',
            id="a container of a pod template that no quota covers",
        ),
    ],
)
def test_what_its_workload_could_not_count_is_refused(fields: Object, want: str) -> None:
    body = application(**fields)

    with pytest.raises(ComposeError) as refused:
        check_owner(SPARK_APPLICATION, body)
    (fault,) = validate_owner(SPARK_APPLICATION, body)
    assert str(fault) in str(refused.value)
    assert str(fault).startswith(want)
    del body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert validate_owner(SPARK_APPLICATION, body) == ()


@pytest.mark.parametrize(
    ("key", "value", "field", "fields"),
    [
        ("spark.dynamicAllocation.enabled", "true", "executor.instances", {}),
        ("spark.streaming.dynamicAllocation.enabled", "TRUE", "executor.instances", {}),
        ("spark.executor.instances", "500", "executor.instances", {"executor__instances": None}),
        ("spark.driver.cores", "64", "driver.coreRequest", {"driver__coreRequest": None}),
        ("spark.executor.cores", "64", "executor.coreRequest", {"executor__coreRequest": None}),
        (
            "spark.kubernetes.executor.request.cores",
            "64",
            "executor.coreRequest",
            {"executor__coreRequest": None, "executor__cores": 1},
        ),
        ("spark.executor.memory", "500g", "executor.memory", {"executor__memory": None}),
        ("spark.driver.memoryOverhead", "500g", "driver.memoryOverhead", {}),
        ("spark.yarn.executor.memoryOverhead", "500g", "executor.memoryOverhead", {}),
        ("spark.executor.memoryOverheadFactor", "9", "executor.memoryOverhead", {}),
        ("spark.driver.minMemoryOverhead", "9g", "driver.memoryOverhead", {}),
        ("spark.executor.pyspark.memory", "9g", "executor.memoryOverhead", {}),
        ("spark.memory.offHeap.enabled", "true", "executor.memoryOverhead", {}),
        (
            "spark.kubernetes.memoryOverheadFactor",
            "9",
            "memoryOverheadFactor",
            {"memoryOverheadFactor": "0.1"},
        ),
        ("spark.kubernetes.executor.podTemplateFile", "http://a/b", "executor.template", {}),
        ("spark.executor.resource.gpu.amount", "8", "executor.gpu", {}),
        (
            "spark.driver.resource.gpu.amount",
            "8",
            "driver.gpu",
            {"driver__gpu": {"name": "nvidia.com/gpu", "quantity": 1}},
        ),
    ],
)
def test_a_setting_of_spark_that_changes_its_pods_is_refused(
    key: str, value: str, field: str, fields: Object
) -> None:
    body = application(**fields, sparkConf={key: value, "spark.ui.enabled": "true"})

    (fault,) = validate_owner(SPARK_APPLICATION, body)
    assert str(fault).startswith(
        f'spec.sparkConf[{key}] is "{value}": its Workload does not count it; set spec.{field} '
    )
    with pytest.raises(ComposeError, match=r"set spec\."):
        check_owner(SPARK_APPLICATION, body)


@pytest.mark.parametrize(
    ("conf", "fields"),
    [
        pytest.param({"spark.dynamicAllocation.enabled": "false"}, {}, id="a switch that is off"),
        pytest.param({"spark.dynamicAllocation.maxExecutors": "500"}, {}, id="a bound of what is off"),
        pytest.param(
            {
                "spark.executor.instances": "500",
                "spark.executor.cores": "64",
                "spark.kubernetes.driver.request.cores": "64",
                "spark.driver.memory": "500g",
                "spark.executor.memoryOverhead": "500g",
            },
            {"executor__memoryOverhead": "1g"},
            id="settings whose fields win",
        ),
        pytest.param(
            {"spark.executor.cores": "64"},
            {"executor__coreRequest": None, "executor__cores": 2},
            id="cores beside the field of the same name",
        ),
        pytest.param(
            {
                "spark.executor.resource.gpu.amount": "2",
                "spark.executor.resource.gpu.vendor": "nvidia.com",
                "spark.task.resource.gpu.amount": "1",
            },
            {"executor__gpu": {"name": "nvidia.com/gpu", "quantity": 2}},
            id="GPUs that the field has too",
        ),
        pytest.param({"spark.sql.shuffle.partitions": "8"}, {}, id="settings of the program"),
    ],
)
def test_a_setting_of_spark_that_changes_no_pods_is_accepted(conf: Object, fields: Object) -> None:
    check_owner(SPARK_APPLICATION, application(**fields, sparkConf=conf))


def test_a_pod_template_with_sparks_own_container_is_no_fault() -> None:
    one = {"spec": {"containers": [{"name": "any"}]}}

    check_owner(SPARK_APPLICATION, application(driver__template=one, executor__template=one))


INJECTION = Injection(
    labels={"kueue.x-k8s.io/podset": "p"},
    node_selector={"zone": "a"},
    gates=("kueue.x-k8s.io/topology",),
    one_of={"rack": ("r1", "r2")},
)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="fields of its own"),
        pytest.param(
            {"driver__template": {"metadata": {"labels": {"team": "a", "of": "template"}}, "spec": {}}},
            id="labels that its pod template has too",
        ),
        pytest.param(
            {
                f"{role}__{name}": None
                for role in ("driver", "executor")
                for name in ("labels", "tolerations")
            },
            id="nothing of its own",
        ),
    ],
)
def test_a_stop_restores_what_a_start_has_changed(fields: Object) -> None:
    body = merged({}, application(**fields))
    originals = SPARK_APPLICATION.pod_sets(body)
    started = merged(
        body,
        start_patch(SPARK_APPLICATION, body, originals, dict.fromkeys(("driver", "executor"), INJECTION)),
    )

    driver = started["spec"]["driver"]
    assert driver["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert driver["template"]["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert value_at(driver, ("affinity", "nodeAffinity")) is not None
    assert driver["labels"]["kueue.x-k8s.io/podset"] == "p"
    templates = {one.name: one.template for one in originals}
    stopped = merged(
        started,
        restore_patch_of(SPARK_APPLICATION, started, SPARK_APPLICATION.pod_sets(started), templates),
    )
    assert stopped["spec"] == body["spec"]


def test_a_common_node_selector_survives_a_start_and_a_stop_in_each_role() -> None:
    body = application(nodeSelector={"pool": "spark"}, driver__nodeSelector=None, executor__nodeSelector=None)
    originals = SPARK_APPLICATION.pod_sets(body)
    assert [one.template["spec"]["nodeSelector"] for one in originals] == [{"pool": "spark"}] * 2

    started = merged(
        body,
        start_patch(SPARK_APPLICATION, body, originals, dict.fromkeys(("driver", "executor"), INJECTION)),
    )

    assert "nodeSelector" not in started["spec"]
    templates = {one.name: one.template for one in originals}
    stopped = merged(
        started,
        restore_patch_of(SPARK_APPLICATION, started, SPARK_APPLICATION.pod_sets(started), templates),
    )
    assert [stopped["spec"][role]["nodeSelector"] for role in ("driver", "executor")] == [
        {"pool": "spark"}
    ] * 2


def driver(name: str = "j-driver", **requests: str) -> Child:
    """Return a pod as Spark creates it for the driver."""
    one = {"name": "spark-kubernetes-driver", "resources": {"requests": requests}}
    return Child(kind="Pod", name=name, body={"spec": {"containers": [one]}})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(driver(cpu="1", memory="896Mi"), True, id="the driver with Spark's own overhead"),
        pytest.param(driver(cpu="1", memory="1Gi"), False, id="one with more memory"),
        pytest.param(driver(cpu="2", memory="1Mi"), False, id="one with more CPU"),
        pytest.param(driver("k-driver", cpu="1"), False, id="a pod of another name"),
    ],
)
def test_the_driver_is_counted_with_what_spark_adds_to_it(one: Child, want: bool) -> None:
    assert counts(SPARK_APPLICATION, application(), one) is want


@pytest.mark.parametrize(
    ("state", "is_active", "is_success"),
    [
        ("", False, None),
        ("SUBMITTED", True, None),
        ("SUSPENDING", True, None),
        ("SUSPENDED", False, None),
        ("SUBMISSION_FAILED", False, None),
        ("PENDING_RERUN", True, None),
        ("COMPLETED", False, True),
        ("FAILED", False, False),
    ],
)
def test_states_of_the_operator(state: str, is_active: bool, is_success: bool | None) -> None:
    body = {**application(), "status": {"applicationState": {"state": state}}}

    ended = SPARK_APPLICATION.outcome(body)
    assert SPARK_APPLICATION.active(body) == is_active
    assert (None if ended is None else ended.is_success) is is_success
