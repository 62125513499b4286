"""Tables: paths of columns, ages, and what rows carry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from api.kube.embedded.kinds.tables import age, duration, json_path

from .raw import RawApi, job, pod

ITEM = {
    "metadata": {"annotations": {"a.b/c": "noted"}},
    "spec": {"items": [{"name": "x"}, {"name": "y"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Admitted", "status": "False"}]},
}
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (".spec.items[1].name", "y"),
        (".spec.items[*].name", "x"),
        ('.status.conditions[?(@.type=="Admitted")].status', "False"),
        (".status.conditions[?(@.type=='Gone')].status", None),
        (r".metadata.annotations.a\.b/c", "noted"),
        (".metadata.annotations['a.b/c']", "noted"),
        (".spec.items[7].name", None),
        (".spec.nothing.below", None),
    ],
)
def test_paths_of_columns(path: str, want: Any) -> None:
    assert json_path(path)(ITEM) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (305, "5m5s"),
        (660, "11m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (9 * 3600 + 300, "9h"),
        (47 * 3600, "47h"),
        (2 * 86400 + 3 * 3600, "2d3h"),
        (30 * 86400, "30d"),
        (800 * 86400, "2y"),
    ],
)
def test_durations_have_as_many_units_as_matter(seconds: int, want: str) -> None:
    assert duration(seconds) == want


def test_an_age_is_counted_from_its_instant() -> None:
    now = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)

    assert age("2026-01-01T12:00:00Z", now) == "30s"
    assert age(None, now) == "<unknown>"


@pytest.mark.parametrize(
    ("include", "want"),
    [("", "PartialObjectMetadata"), ("Object", "Pod"), ("None", None)],
    ids=["metadata by default", "the whole object", "nothing"],
)
async def test_what_rows_carry(api: RawApi, include: str, want: str | None) -> None:
    await api.create(api.path("pods"), pod("p"))

    params = {"includeObject": include} if include else {}
    answer = await api.call("GET", api.path("pods"), accept=AS_TABLE, **params)

    (row,) = answer.body["rows"]
    carried = row.get("object")
    assert (carried["kind"] if carried else None) == want


async def test_metadata_alone_can_be_asked_for(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))
    accept = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"

    one = await api.call("GET", api.jobs("j"), accept=accept.format(""))
    many = await api.call("GET", api.jobs(), accept=accept.format("List"))

    assert (one.body["kind"], "spec" in one.body) == ("PartialObjectMetadata", False)
    assert many.body["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in many.body["items"]] == ["j"]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"phase": "Running"}, "Running", id="its phase"),
        pytest.param(
            {
                "phase": "Failed",
                "containerStatuses": [
                    {
                        "name": "c",
                        "image": "x",
                        "imageID": "",
                        "ready": False,
                        "restartCount": 0,
                        "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
                    }
                ],
            },
            "Error",
            id="why its container ended",
        ),
    ],
)
async def test_the_status_of_a_pod(api: RawApi, change: dict[str, Any], want: str) -> None:
    await api.create(api.path("pods"), pod("p"))
    await api.merge(api.path("pods", "p", subresource="status"), {"status": change})

    answer = await api.call("GET", api.path("pods", "p"), accept=AS_TABLE)

    names = [each["name"] for each in answer.body["columnDefinitions"]]
    assert answer.body["rows"][0]["cells"][names.index("Status")] == want
