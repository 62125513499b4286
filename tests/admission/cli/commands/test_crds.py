"""`berth crds`: which definitions are printed, and how."""

from __future__ import annotations

import json

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.commands.crds import find_kinds
from api.definitions.crds import KINDS, crd


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param([], [kind.name for kind in KINDS], id="without words all"),
        pytest.param(["ClusterQueue"], ["ClusterQueue"], id="the kind"),
        pytest.param(["clusterqueues"], ["ClusterQueue"], id="the plural"),
        pytest.param(["cq"], ["ClusterQueue"], id="the short name"),
        pytest.param(["workloads.kueue.x-k8s.io"], ["Workload"], id="the definition's own name"),
        pytest.param(["wl", "cq", "clusterqueue"][1:], ["ClusterQueue"], id="each once"),
        pytest.param(["workload", "cq"], ["ClusterQueue", "Workload"], id="in Berth's order"),
    ],
)
def test_which_kinds_are_meant(words: list[str], want: list[str]) -> None:
    assert [kind.name for kind in find_kinds(words)] == want


def test_yaml_is_a_stream_of_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0

    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [*map(crd, KINDS)]


def test_json_is_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "-o", "json", "lq"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["kind"] == "List"
    assert [item["metadata"]["name"] for item in printed["items"]] == ["localqueues.kueue.x-k8s.io"]
