"""Large reviews do not hold up the event loop that leads, and are answered like small ones."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.http.review_process import ReviewProcess
from admission.controller.http.webhooks import LARGE_BYTES, MAX_OBJECT_BYTES, Webhooks
from admission.reconcile.job.context import JobSettings
from api import keys
from api.http.server import HttpServer
from tests.admission.controller.http.test_webhooks import (
    Object,
    flavor,
    job,
    known_job,
    owned_pod,
    pod,
    review,
    serving_object,
    workload,
)
from tests.admission.controller.known import Known, local_queue_object, made, namespace_object
from tests.steps import measured_steps

MOST_SECONDS = 0.05
# The rest of an object is small.
LARGEST = MAX_OBJECT_BYTES - 2048
IN_QUEUE = {keys.QUEUE_NAME: "lq"}


@asynccontextmanager
async def serving(reviews: ReviewProcess | None = None) -> AsyncIterator[str]:
    """Serve webhooks with all integrations on, for namespace b with defaults; give the URL."""
    known = Known(
        namespace_object("a"),
        namespace_object("b"),
        local_queue_object("default", "b", "cq"),
        made("WorkloadPriorityClass", "default", value=5),
        known_job(),
        settings=ClusterStateSettings(
            with_pods=True,
            serving_kinds=frozenset({"Deployment"}),
            jobs=JobSettings(has_class_defaults=True),
        ),
    )
    child, conversions = reviews or ReviewProcess(), ReviewProcess()
    webhooks = Webhooks(known.cluster_state, lambda: True, reviews=child, conversions=conversions)
    try:
        async with HttpServer(webhooks.routes()) as server:
            yield server.url
    finally:
        await child.close()
        await conversions.close()


async def post(url: str, path: str, question: Object) -> tuple[int, Any]:
    """Send a review; return status and answer."""
    return await send(url, path, encoded(question))


def encoded(question: Object) -> bytes:
    """Return the JSON of a review, as short as the API server's."""
    return json.dumps(question, separators=(",", ":")).encode()


async def send(url: str, path: str, body: bytes) -> tuple[int, Any]:
    """Send a review piece by piece, as it comes from a network; return status and answer."""
    async with aiohttp.ClientSession() as session, session.post(url + path, data=io.BytesIO(body)) as answer:
        return answer.status, await answer.json()


def crowded(obj: Object, path: str, size: int = LARGEST) -> Object:
    """Return the object with a list of empty entries, which take longest to read, at a path."""
    target = obj
    *parents, last = path.split(".")
    for name in parents:
        target = target.setdefault(name, {})
    target[last] = [{}] * (size // 3)
    return obj


def padded(obj: Object, size: int = LARGE_BYTES) -> Object:
    """Return the object, with an annotation that makes its review a large one."""
    obj["metadata"].setdefault("annotations", {})["padding"] = "x" * size
    return obj


@pytest.mark.parametrize(
    ("path", "question"),
    [
        pytest.param("/validate", crowded(workload(), "status.conditions"), id="a Workload"),
        pytest.param("/mutate", crowded(job(), "spec.template.spec.containers"), id="a Job"),
        pytest.param("/mutate", crowded(pod(), "metadata.ownerReferences"), id="a pod with many owners"),
    ],
)
async def test_twenty_reviews_of_the_largest_size_take_short_steps(path: str, question: Object) -> None:
    asked = encoded(review(question, None if path == "/mutate" else question))
    async with serving() as url:
        with measured_steps() as steps:
            answers = await asyncio.gather(*(send(url, path, asked) for _ in range(20)))

    assert {status for status, _ in answers} == {200}
    assert steps.longest_seconds < MOST_SECONDS, steps


@pytest.mark.parametrize(
    ("path", "new"),
    [
        pytest.param("/mutate", job("b"), id="a Job gets defaults"),
        pytest.param("/mutate", pod(labels=IN_QUEUE), id="a pod is held"),
        pytest.param("/mutate", owned_pod(), id="a pod of a Job is not held"),
        pytest.param("/mutate", serving_object(labels=IN_QUEUE), id="a Deployment passes its queue on"),
        pytest.param("/validate", flavor(nodeLabels={"zone": "a b"}), id="a flavor is refused"),
        pytest.param("/validate", {**job(), "metadata": {"labels": [1]}}, id="a Job that cannot be read"),
    ],
)
async def test_a_large_review_is_answered_like_a_small_one(path: str, new: Object) -> None:
    # Beside the object, so that the answer does not depend on it.
    asked = review(new, userInfo={"username": "tester", "groups": ["x" * LARGE_BYTES]})
    async with serving() as url:
        want = await post(url, path, review(new))
        got = await post(url, path, asked)

    assert got == want


async def test_a_pod_of_an_unknown_job_is_refused_for_now_however_large() -> None:
    asked = review(owned_pod(uid="other"), userInfo={"groups": ["x" * LARGE_BYTES]})
    async with serving() as url:
        assert (await post(url, "/mutate", asked))[0] == 503


async def test_an_object_that_etcd_would_not_store_is_refused_by_its_size() -> None:
    async with serving() as url:
        status, answer = await post(url, "/validate", review(padded(job(), MAX_OBJECT_BYTES)))

    assert (status, answer["error"]) == (413, "the Job is larger than 1536 KiB, more than etcd stores")


async def test_two_objects_of_the_largest_size_are_answered() -> None:
    one = padded(job(), LARGEST)
    async with serving() as url:
        assert (await post(url, "/validate", review(one, one)))[0] == 200


async def test_a_child_that_was_killed_is_replaced() -> None:
    child, asked = ReviewProcess(), review(padded(job()))
    async with serving(child) as url:
        assert (await post(url, "/validate", asked))[0] == 200
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        # The review that finds it dead has to be sent again.
        await post(url, "/validate", asked)
        assert (await post(url, "/validate", asked))[0] == 200


async def test_a_client_that_gives_up_leaves_no_answer_to_the_next_one() -> None:
    child, asked = ReviewProcess(), review(padded(job()))
    async with serving(child) as url:
        await post(url, "/validate", asked)
        assert child.pid is not None
        # It cannot answer, however fast it is.
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post(url, "/validate", asked), 0.2)
        asked["request"]["uid"] = "second"
        status, answer = await post(url, "/validate", asked)

    assert (status, answer["response"]["uid"]) == (200, "second")
