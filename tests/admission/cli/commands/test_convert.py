"""`berth convert`: what comes out, what is named, and that nothing comes out beside a mistake."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode

OLD = """# Two kinds, and one that is not Kueue's.
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: research, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  cohort: all
  namespaceSelector: {}
  admissionChecks: [budget]
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget, retryDelayMinutes: 5}
"""
WRONG = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: research}
spec: {cohort: all, queueingStrategy: Random}
---
apiVersion: kueue.x-k8s.io/v1alpha1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
"""


def write(folder: Path, text: str) -> str:
    path = folder / "old.yaml"
    path.write_text(text)
    return str(path)


def test_old_manifests_come_out_in_the_new_version_and_all_others_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path, OLD)

    assert main(["convert", "-f", source]) == ExitCode.DONE

    out, err = capsys.readouterr()
    queue, namespace, check = yaml.load_all(out, Loader=yaml.BaseLoader)
    assert queue["apiVersion"] == check["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert queue["spec"]["cohortName"] == "all"
    assert queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "budget"}]}
    assert queue["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert namespace == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    want = f"{source}, document 3 (AdmissionCheck budget): spec.retryDelayMinutes has no counterpart"
    assert err.strip() == f"berth convert: {want} and is left out"


def test_every_mistake_is_named_by_file_document_and_field_and_nothing_comes_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path, WRONG)

    assert main(["convert", "-f", source]) == ExitCode.WRONG_USAGE

    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(
        f'berth convert: {source}, document 1 (ClusterQueue research): spec.queueingStrategy is "Random":'
    )
    assert second == (
        f"berth convert: {source}, document 2 (Topology racks): apiVersion is kueue.x-k8s.io/v1alpha1: "
        "only kueue.x-k8s.io/v1beta1 is converted"
    )


def test_a_list_from_standard_input_comes_out_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "LocalQueue",
                "metadata": {"name": "gpu", "namespace": "team"},
                "spec": {"clusterQueue": "research"},
            }
        ],
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(listed)))

    assert main(["convert", "-f", "-", "-o", "json"]) == ExitCode.DONE

    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["apiVersion"] == "kueue.x-k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("kind: ClusterQueue", "document 1: expected an object with apiVersion and kind"),
        ("- a\n- b", "holds a list, expected an object with a kind"),
        ("a: [", "is neither YAML nor JSON"),
    ],
)
def test_what_is_no_manifest_is_named(
    text: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "-f", write(tmp_path, text)]) == ExitCode.WRONG_USAGE
    assert want in capsys.readouterr().err
