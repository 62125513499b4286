"""`berth decide`: manifests and cases in, tables, JSON and errors out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main

Object = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"


def kueue(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def workload(name: str, gpus: int, **spec: Any) -> Object:
    container = {"name": "c", "resources": {"requests": {"gpu": gpus}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return kueue("Workload", name, {"queueName": "lq", "podSets": [pod_set], **spec}, "team")


def cluster_queue(quota: int | str, **spec: Any) -> Object:
    flavor = {"name": "default", "resources": [{"name": "gpu", "nominalQuota": quota}]}
    groups = [{"coveredResources": ["gpu"], "flavors": [flavor]}]
    return kueue("ClusterQueue", "cq", {"resourceGroups": groups, "namespaceSelector": {}, **spec})


def cluster(*others: Object, quota: int | str = 4) -> list[Object]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        kueue("ResourceFlavor", "default", {}),
        cluster_queue(quota),
        kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, "team"),
        *others,
    ]


def case(name: str, *others: Object, **fields: Any) -> str:
    body = {"name": name, "now": "2026-01-15T12:00:00Z", "objects": cluster(*others), **fields}
    return json.dumps(body)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that sets the contents of standard input."""

    def type_(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return type_


def write(folder: Path, name: str, objects: list[Object]) -> str:
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(one) for one in objects))
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Object]:
    code = main(["decide", "-o", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_manifests_are_decided_to_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "all.yaml", cluster(workload("a", 3), workload("b", 1), workload("c", 5)))

    code, result = run_json(capsys, "-f", path)

    assert code == 0
    assert result["admissions"] == {
        f"team/{name}": {
            "clusterQueue": "cq",
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "flavors": {"gpu": "default"},
                    "usage": {"gpu": gpus},
                    "topology": None,
                }
            ],
        }
        for name, gpus in (("a", "3"), ("b", "1"))
    }
    assert result["inadmissible"] == {"cq": ["team/c"]}
    assert (result["left"], result["evictions"]) == ({}, {})
    assert result["waiting"] == {"team/c": "ExceedsMaxQuota"}


def job(name: str, gpus: int, **labels: str) -> Object:
    resources = {"requests": {"gpu": str(gpus)}}
    pods = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": resources}]}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": {"spec": pods}},
    }


QUEUED = {"kueue.x-k8s.io/queue-name": "lq"}


def test_jobs_become_workloads_and_what_is_left_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "seen", "uid": "uid-seen", "controller": True}
    seen = workload("seen-workload", 1)
    seen["metadata"]["ownerReferences"] = [owner]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}}
    objects = cluster(job("new", 2, **QUEUED), job("seen", 1, **QUEUED), seen, job("idle", 1), secret)

    code = main(["decide", "-o", "json", "-f", write(tmp_path, "all.yaml", objects)])

    out, err = capsys.readouterr()
    names = sorted(json.loads(out)["admissions"])
    assert code == 0
    assert (len(names), names[1]) == (2, "team/seen-workload")
    assert names[0].startswith("team/job-new-")
    assert "Job team/idle names no queue" in err
    assert "Secret team/s is left out: decisions do not depend on this kind" in err


def test_cycles_bound_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "all.yaml", cluster(workload("a", 1), workload("b", 1)))

    _, result = run_json(capsys, "-f", path, "--cycles", "1")

    assert list(result["admissions"]) == ["team/a"]
    assert result["left"] == {"cq": ["team/b"]}


def test_a_directory_a_list_and_older_objects_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = cluster_queue(4)
    older["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    older["spec"]["cohort"] = "team"
    others = [one for one in cluster(workload("a", 1)) if one["kind"] != "ClusterQueue"]
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", "older.yml", [older])
    write(tmp_path, "list.json", [{"apiVersion": "v1", "kind": "List", "items": others}])

    code, result = run_json(capsys, "-f", str(tmp_path))

    assert (code, list(result["admissions"])) == (0, ["team/a"])


def test_standard_input_is_a_file_too(typed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    typed("\n---\n".join(json.dumps(one) for one in cluster(workload("a", 1))))

    _, result = run_json(capsys, "-f", "-")

    assert list(result["admissions"]) == ["team/a"]


def test_the_table_says_what_each_workload_gets_and_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = workload("lost", 1, queueName="nowhere")
    path = write(tmp_path, "all.yaml", cluster(workload("a", 3), workload("b", 5), lost))

    code = main(["decide", "-f", path])

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert rows[0] == ["QUEUE", "POSITION", "WORKLOAD", "DECISION", "FLAVOR", "MESSAGE"]
    assert rows[1][:4] == ["cq", "team/a", "admit", "default"]
    assert rows[2][:5] == ["cq", "1", "team/b", "parked", "ExceedsMaxQuota:"]
    assert rows[3][:4] == ["team/lost", "not", "queued", "Misconfigured:"]


def test_an_empty_cluster_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "all.yaml", cluster())

    assert main(["decide", "-f", path]) == 0
    assert capsys.readouterr().out == "No Workload holds quota or waits for it.\n"


def test_an_object_that_cannot_be_used_is_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = kueue("LocalQueue", "other", {}, "team")
    path = write(tmp_path, "all.yaml", cluster(workload("a", 1), broken))

    code = main(["decide", "-f", path, "-o", "json"])

    captured = capsys.readouterr()
    assert code == 2
    assert list(json.loads(captured.out)["admissions"]) == ["team/a"]
    assert captured.err == (
        "berth decide: LocalQueue team/other: spec.clusterQueue is empty; "
        "name the ClusterQueue that serves it\n"
    )


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="a file that is not there"),
        pytest.param("a: [", "all.yaml is neither YAML nor JSON", id="a file that is neither"),
        pytest.param("- 1", "all.yaml holds a list, expected an object with a kind", id="a file of a list"),
        pytest.param("a: 1", "all.yaml holds an object without a kind", id="an object without a kind"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_run_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, want: str
) -> None:
    path = tmp_path / "all.yaml"
    if content is not None:
        path.write_text(content)

    assert main(["decide", "-f", str(path)]) == 2
    assert want in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param([], "nothing to decide on", id="nothing given"),
        pytest.param(["--jsonl", "-f", "x"], "leave out -f", id="both forms at once"),
        pytest.param(["-f", "x", "--cycles", "0"], "whole number of 1 or more", id="no cycle"),
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", *arguments]) == 2
    assert want in capsys.readouterr().err


def test_cases_are_answered_line_by_line(typed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    typed("\n".join([case("one", workload("a", 1)), "", case("two", workload("b", 9))]) + "\n")

    code = main(["decide", "--jsonl", "--cycles", "1"])

    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert code == 0
    assert (first["name"], list(first["admissions"])) == ("one", ["team/a"])
    assert (second["name"], second["waiting"]) == ("two", {"team/b": "ExceedsMaxQuota"})


def test_a_case_that_cannot_be_decided_is_answered_by_its_error(
    typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("\n".join([case("broken", cluster_queue("lots")), "{", case("sound", workload("a", 1))]))

    code = main(["decide", "--jsonl"])

    broken, unreadable, sound = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert code == 2
    assert broken["name"] == "broken"
    assert "ClusterQueue cq: spec.resourceGroups[0].flavors[default]" in broken["error"]
    assert unreadable["error"].startswith("the case cannot be read")
    assert list(sound["admissions"]) == ["team/a"]


def test_a_case_with_an_object_that_is_not_utf_8_is_answered_by_its_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b"\n".join(
        [case("bad", workload("caf", 1)).encode().replace(b"caf", b"\x80"), case("good").encode()]
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))

    main(["decide", "--jsonl"])

    bad, good = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert bad["error"].startswith("an object has no readable kind and metadata: 'utf-8' codec")
    assert good["name"] == "good"


def test_a_case_nested_too_deep_does_not_keep_others_from_an_answer(
    typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("\n".join(['{"name":' * 99_999, case("sound", workload("a", 1))]))

    code = main(["decide", "--jsonl"])

    unreadable, sound = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert code == 2
    assert unreadable["error"].startswith("the case cannot be read")
    assert list(sound["admissions"]) == ["team/a"]


def test_a_configuration_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_bytes(b"\xff\xfe")

    assert main(["decide", "-f", str(tmp_path), "--config", str(config)]) == 2
    assert f"cannot read the configuration {config}: " in capsys.readouterr().err


def test_a_case_may_switch_fair_sharing_on(typed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    typed(case("fair", workload("a", 1), fairSharing=True))

    assert main(["decide", "--jsonl"]) == 0
    assert list(json.loads(capsys.readouterr().out)["admissions"]) == ["team/a"]


def full_node() -> list[Object]:
    """A topology of one node, and a bound Pod that leaves nothing of it to a Workload."""
    flavor = kueue("ResourceFlavor", "default", {"topologyName": "hosts", "nodeLabels": {"pool": "a"}})
    topology = kueue("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    labels = {"pool": "a", "kubernetes.io/hostname": "n0"}
    status = {
        "allocatable": {"gpu": "1", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    container = {"name": "c", "resources": {"requests": {"gpu": "1"}}}
    return [
        topology,
        flavor,
        {"kind": "Node", "metadata": {"name": "n0", "labels": labels}, "spec": {}, "status": status},
        {
            "kind": "Pod",
            "metadata": {"name": "daemon", "namespace": "team"},
            "spec": {"nodeName": "n0", "containers": [container]},
            "status": {"phase": "Running"},
        },
    ]


def test_pods_take_room_in_manifests_but_not_in_a_recorded_cycle(
    typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [*full_node(), workload("a", 1)]
    path = write(tmp_path, "all.json", cluster(*others))
    typed(case("recorded", *others))

    main(["decide", "-f", path, "-o", "json"])
    main(["decide", "--jsonl"])

    manifests, recorded = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert manifests["waiting"] == {"team/a": "TopologyPlacementFailed"}
    assert list(recorded["admissions"]) == ["team/a"]


def test_the_configuration_of_kueue_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "fairSharing: {}\nresources: {excludeResourcePrefixes: [gpu]}\n"
    )
    path = write(tmp_path, "all.json", cluster(workload("a", 99)))

    _, result = run_json(capsys, "-f", path, "--config", str(config))

    assert list(result["admissions"]) == ["team/a"]


def test_a_configuration_that_cannot_be_used_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("kind: Nonsense\n")
    path = write(tmp_path, "all.json", cluster())

    assert main(["decide", "-f", path, "--config", str(config)]) == 2
    assert "config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param("2026-01-15T12:00:00Z", ["small"], id="at noon the ClusterQueue's own quota counts"),
        pytest.param("2026-01-15T22:00:00Z", ["large", "small"], id="at night the window's"),
    ],
)
def test_a_case_is_decided_by_the_quota_windows_that_are_open_at_its_time(
    now: str, want: list[str], typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    night = {
        "name": "night",
        "clusterQueue": "cq",
        "flavor": "default",
        "resource": "gpu",
        "nominalQuota": 12,
        "schedule": "0 20 * * *",
        "timeZone": "Europe/Berlin",
        "durationSeconds": 36000,
    }
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "nights"},
        "spec": {"quotaWindows": [night]},
    }
    typed(case("night", policy, workload("small", 2), workload("large", 8), now=now))

    assert main(["decide", "--jsonl"]) == 0

    admitted = json.loads(capsys.readouterr().out)["admissions"]
    assert sorted(name.removeprefix("team/") for name in admitted) == want


def test_the_example_of_quota_windows_is_decided_with_the_example_queues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = Path(__file__).parents[4] / "examples"
    files = [str(examples / name) for name in ("queues.yaml", "quota-windows.yaml", "workloads.yaml")]
    arguments = [word for name in files for word in ("-f", name)]

    code, result = run_json(capsys, *arguments)

    assert code == 0
    assert result["admissions"]


@pytest.mark.parametrize("command", ["decide", "convert"])
def test_manifests_that_are_nested_too_deep_are_refused_with_the_name_of_their_file(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text('{"kind": "Topology", "spec": ' + "[" * 5_000 + "]" * 5_000 + "}")

    assert main([command, "-f", str(path)]) == 2
    assert capsys.readouterr().err == f"berth {command}: {path} is nested too deep: more than 100 levels\n"


def test_devices_by_claim_are_counted_by_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [gpu.example.com]}]}\n"
    )
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 3}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "three", "namespace": "team"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    claiming = [workload(name, 0) for name in ("a", "b")]
    for one in claiming:
        spec = one["spec"]["podSets"][0]["template"]["spec"]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "three"}]
    folder = tmp_path / "manifests"
    folder.mkdir()
    path = write(folder, "all.json", cluster(template, *claiming))

    _, result = run_json(capsys, "-f", path, "--config", str(config))

    assert list(result["admissions"]) == ["team/a"]
