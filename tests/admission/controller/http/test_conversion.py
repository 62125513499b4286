"""The conversion webhook: ConversionReviews are answered in order, and what cannot be converted is named."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from admission.controller.http import conversion_answers, review_process
from admission.controller.http.conversion_answers import answer_conversion
from admission.controller.http.webhooks import LARGE_BYTES
from tests.admission.controller.http.test_large_reviews import MOST_SECONDS, crowded, send, serving
from tests.steps import measured_steps

Object = dict[str, Any]
OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def queue(name: str, version: str = OLD, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def review(*objects: Any, wanted: str = NEW) -> bytes:
    request = {"uid": "u-1", "desiredAPIVersion": wanted, "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


def answered(body: bytes) -> Any:
    found = json.loads(answer_conversion(body))
    assert (found["apiVersion"], found["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert found["response"]["uid"] == "u-1"
    return found["response"]


def test_all_objects_are_converted_in_their_order() -> None:
    found = answered(review(queue("a", cohort="x"), queue("b"), queue("c", cohort="y")))

    assert found["result"] == {"status": "Success"}
    assert found["convertedObjects"] == [
        queue("a", NEW, cohortName="x"),
        queue("b", NEW),
        queue("c", NEW, cohortName="y"),
    ]


def test_an_object_goes_back_to_the_older_version() -> None:
    found = answered(review(queue("a", NEW, cohortName="x"), wanted=OLD))

    assert found["convertedObjects"] == [queue("a", OLD, cohort="x")]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(
            review(queue("a"), wanted="kueue.x-k8s.io/v1"),
            "Berth converts to kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2, not to 'kueue.x-k8s.io/v1'",
            id="a version that is not served",
        ),
        pytest.param(review(queue("a"), 7), "objects[1] is no object but int", id="a number"),
        pytest.param(
            review({"apiVersion": [1]}),
            f"objects[0] has apiVersion '[1]', not {OLD} or {NEW}",
            id="a version that is a list",
        ),
        pytest.param(
            review(queue("a", "batch/v1")),
            "objects[0] has apiVersion 'batch/v1', not kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2",
            id="an object of another group",
        ),
        pytest.param(
            review({"kind": "ClusterQueue"}),
            "objects[0] has apiVersion 'None', not kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2",
            id="an object without version",
        ),
    ],
)
def test_what_is_not_converted_fails_with_a_sentence(body: bytes, want: str) -> None:
    found = answered(body)

    assert found == {"uid": "u-1", "result": {"status": "Failed", "message": want}}


def test_an_answer_that_is_too_large_asks_for_shorter_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_answers, "MOST_ANSWER_BYTES", 1 << 20)

    found = answered(review(queue("a", cohort="x" * (1 << 20))))

    assert found["result"]["message"] == f"the objects take more than 1 MiB in {NEW}; list fewer at a time"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b"[]", "Expected `object`, got `array`", id="a list"),
        pytest.param(b'{"request": {"uid": "u"}}', "desiredAPIVersion", id="no version"),
        pytest.param(b"\xff", "", id="bytes that are no text"),
        pytest.param(b'{"request": ' * 100_000, "", id="nested too deeply"),
    ],
)
async def test_what_is_no_review_is_a_bad_request(body: bytes, want: str) -> None:
    async with serving() as url:
        status, answer = await send(url, "/convert", body)

    assert status == 400
    assert want in answer["error"]


def test_an_assignment_that_would_take_gigabytes_stays_as_it_is() -> None:
    values = {"individual": {"prefix": "x" * 20_000, "roots": [""] * 20_000}}
    one = {"domainCount": 20_000, "valuesPerLevel": [values], "podCounts": {"universal": 1}}
    assignment = {"levels": ["rack"], "slices": [one]}
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}],
    }
    workload = {
        "apiVersion": NEW,
        "kind": "Workload",
        "metadata": {"name": "w"},
        "status": {"admission": admission},
    }

    found = answered(review(workload, wanted=OLD))

    assert found["convertedObjects"][0]["status"]["admission"] == admission


def test_a_mistake_in_an_answer_does_not_end_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> bytes:
        raise TypeError("unhashable")

    monkeypatch.setattr(review_process, "answer_conversion", fail)

    reply = review_process._reply(review_process._Order("convert", b"", None))

    assert reply == review_process._Refusal(500, "the review ended in TypeError")


async def test_large_reviews_take_short_steps() -> None:
    """As large AdmissionReviews, they are read by a child process."""
    body = review(crowded(queue("a"), "status.conditions"))
    async with serving() as url, aiohttp.ClientSession() as session:

        async def ask() -> tuple[int, int]:
            async with session.post(f"{url}/convert", data=io.BytesIO(body)) as answer:
                return answer.status, len(await answer.read())

        with measured_steps() as steps:
            answers = await asyncio.gather(*(ask() for _ in range(5)))

    assert len(body) > LARGE_BYTES
    assert {(status, size > len(body) // 2) for status, size in answers} == {(200, True)}
    assert steps.longest_seconds < MOST_SECONDS, steps


async def test_a_large_review_is_answered_like_a_small_one() -> None:
    long = "x" * LARGE_BYTES
    async with serving() as url:
        _, found = await send(url, "/convert", review(queue("a", cohort=long)))
        refused = await send(url, "/convert", b'{"padding": "' + long.encode() + b'"}')

    assert found["response"]["convertedObjects"] == [queue("a", NEW, cohortName=long)]
    assert refused[0] == 400
