"""Explanations and what-if questions: tried on copies of the engine, with names as rights allow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from admission.answers.items import Kind
from admission.controller.queries import service
from admission.controller.queries.callers import TRUSTED, Caller
from api.http.server import HttpError, Request
from api.keys import EXPECTED_RUNTIME_SECONDS
from tests.admission.controller.known import (
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)
from tests.admission.controller.queries.asking import Asked, running_workload
from tests.integration.waiting import PATIENCE_SECONDS


def busy_cluster() -> tuple[Object, ...]:
    """Return two teams in one cohort of 3 CPUs. bob has borrowed 2 of them, and ada waits for one."""
    return (
        namespace_object("ada"),
        namespace_object("bob"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("queue-a", "2", cohortName="all"),
        cluster_queue_object("queue-b", "1", cohortName="all"),
        local_queue_object("lq", "ada", "queue-a"),
        local_queue_object("lq", "bob", "queue-b"),
        made(
            "AdmissionPolicy",
            "p",
            version="berth.dev/v1alpha1",
            spec={"backfill": {"mode": "Conservative"}},
        ),
        *(running_workload(f"run-{at}", "bob", "queue-b", at=at, says=100) for at in range(3)),
        workload_object("w", "ada", "lq", annotations={EXPECTED_RUNTIME_SECONDS: "60"}),
    )


@pytest.fixture
def asked() -> Asked:
    asked = Asked(*busy_cluster())
    asked.known.clock.at = 1_767_225_610.0
    return asked


async def who(asked: Asked, token: str) -> Caller:
    request = Request(method="GET", path="/v1/x", headers={"authorization": f"Bearer {token}"})
    return await asked.callers.caller(request)


def job(name: str, *, parallelism: int = 1, namespace: str = "ada") -> dict[str, Any]:
    """Return a Job that asks for a CPU for each of its pods."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    spec = {"suspend": True, "parallelism": parallelism, "completions": parallelism, "template": template}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def question(*objects: dict[str, Any], **fields: Any) -> bytes:
    return msgspec.json.encode({"objects": objects, "namespace": "ada", **fields})


async def test_an_explanation_names_what_holds_the_quota(asked: Asked) -> None:
    found = await asked.service.explain(TRUSTED, "ada", "w")

    assert found["verdict"].startswith("It is at position 1")
    assert [one["name"] for one in found["heldBy"]] == ["run-0", "run-1", "run-2"]
    assert found["heldByHidden"] is None


async def test_a_tenant_gets_counts_of_what_it_may_not_see(asked: Asked) -> None:
    found = await asked.service.explain(await who(asked, "ada"), "ada", "w")

    assert (found["heldBy"], found["heldByHidden"]) == ([], {"count": 3, "amount": "3"})
    assert b"run-" not in msgspec.json.encode(found)
    assert b"bob" not in msgspec.json.encode(found)


async def test_what_helps_was_tried_and_changes_nothing(asked: Asked) -> None:
    found = await asked.service.explain(TRUSTED, "ada", "w", with_help=True)

    assert [one["kind"] for one in found["help"]] == ["quota"]
    spec = asked.known.cluster_state.engine.queues.spec("queue-a")
    assert spec is not None
    assert spec.resource_groups[0].flavors[0].resources["cpu"].nominal == 2000


async def test_a_job_that_is_not_submitted_gets_a_start(asked: Asked) -> None:
    found = await asked.service.what_if(TRUSTED, question(job("new")))

    (one,) = found.workloads
    assert (one.owner_name, one.starts_now, one.starts_at) == ("new", False, "2026-01-01T00:01:46Z")
    assert one.held_by


async def test_more_quota_lets_what_waits_start(asked: Asked) -> None:
    raised = cluster_queue_object("queue-a", "9", cohortName="all")

    found = await asked.service.what_if(TRUSTED, question(raised))

    assert [(one.name, one.starts_at) for one in found.others] == [("w", "2026-01-01T00:00:10Z")]
    assert not found.others[0].is_evicted


async def test_the_changes_of_others_are_counted_for_a_tenant(asked: Asked) -> None:
    raised = cluster_queue_object("queue-a", "9", cohortName="all")
    body = msgspec.json.encode({"objects": [raised], "namespace": "bob"})

    found = await asked.service.what_if(await who(asked, "bob"), body)

    assert (found.others, found.hidden_moved, found.hidden_evicted) == ((), 1, 0)


def named(kind: str, namespace: str, **fields: Any) -> dict[str, Any]:
    """Return an object in a namespace. Without more fields it cannot be read."""
    return {"kind": kind, "metadata": {"name": "run-0", "namespace": namespace}, "spec": 1, **fields}


def gone(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    return {"kind": kind, "name": name, "namespace": namespace}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(question(job("new", namespace="bob")), id="a Job"),
        pytest.param(question(named("Workload", "bob")), id="a Workload that cannot be read"),
        pytest.param(
            question(named("LocalQueue", "bob", metadata=made("x", "lq", "bob")["metadata"])), id="a queue"
        ),
        pytest.param(question(namespace_object("bob")), id="a Namespace"),
        pytest.param(question(job("a"), job("b"), job("c", namespace="bob")), id="the last of many"),
        pytest.param(question(remove=[gone("Workload", "run-0", "bob")]), id="a Workload that is removed"),
        pytest.param(question(remove=[gone("Workload", "none", "bob")]), id="one that does not exist"),
        pytest.param(question(remove=[gone("Namespace", "bob")]), id="a Namespace that is removed"),
    ],
)
async def test_a_question_needs_the_right_for_each_namespace_that_it_names(asked: Asked, body: bytes) -> None:
    with pytest.raises(HttpError, match="in namespace bob") as caught:
        await asked.service.what_if(await who(asked, "ada"), body)

    assert caught.value.status == 403


async def test_a_workload_that_cannot_be_read_is_not_answered_with_that_of_its_name(asked: Asked) -> None:
    found = await asked.service.what_if(TRUSTED, question(named("Workload", "bob")))

    assert found.workloads == ()
    assert [note.split(":")[0] for note in found.notes] == ["Workload bob/run-0"]


async def test_what_ends_makes_room(asked: Asked) -> None:
    gone = [{"kind": "Workload", "namespace": "bob", "name": "run-0"}]

    found = await asked.service.what_if(TRUSTED, question(remove=gone))

    assert ("w", "2026-01-01T00:00:10Z") in [(one.name, one.starts_at) for one in found.others]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b"{", "the body is no question", id="no JSON"),
        pytest.param(b"[" * 5000, "the body is no question", id="JSON of great depth"),
        pytest.param(b'"\xff"', "the body is no question", id="text that is not UTF-8"),
        pytest.param(b'{"object": []}', "did you mean objects", id="a field that does not exist"),
        pytest.param(b'{"objects": [1]}', "the body is no question", id="an object that is none"),
        pytest.param(question(*[{}] * 501), "at most 500", id="too many objects"),
        pytest.param(question(remove=[{"kind": "Nod", "name": "n"}]), "did you mean Node", id="a kind"),
        pytest.param(question(remove=[{"kind": "Workload", "name": "n"}]), "namespace", id="half a name"),
    ],
)
async def test_a_question_that_cannot_be_read_is_refused(asked: Asked, body: bytes, want: str) -> None:
    with pytest.raises(HttpError, match=want) as caught:
        await asked.service.what_if(TRUSTED, body)

    assert caught.value.status == 400


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({"kind": "Job", "apiVersion": "batch/v1", "metadata": 7}, id="metadata"),
        pytest.param({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": []}}, id="a name"),
        pytest.param({"kind": {}, "apiVersion": 3}, id="a kind"),
        pytest.param({"kind": "Namespace", "metadata": {"name": {}, "namespace": []}}, id="a namespace"),
        pytest.param({"kind": "Workload", "metadata": {"name": "x"}}, id="a Workload without a spec"),
        pytest.param({"kind": "Workload"}, id="a Workload without a name"),
        pytest.param({"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": 1}, id="a spec"),
        pytest.param({**job("j"), "spec": {"parallelism": "many"}}, id="a count"),
    ],
)
async def test_an_object_of_odd_types_is_answered_with_a_sentence(
    asked: Asked, manifest: dict[str, Any]
) -> None:
    try:
        found = await asked.service.what_if(TRUSTED, question(manifest))
    except HttpError as error:
        assert error.status == 400  # noqa: PT017
    else:
        assert found.notes or not found.workloads


async def test_a_workload_that_does_not_exist_cannot_be_explained(asked: Asked) -> None:
    with pytest.raises(HttpError, match="has no Workload gone") as caught:
        await asked.service.explain(TRUSTED, "ada", "gone")

    assert caught.value.status == 404


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no what-if question be answered."""
    monkeypatch.setattr(service, "what_if", lambda *_: time.sleep(60))


@pytest.mark.usefixtures("slow")
async def test_lists_do_not_wait_for_questions(asked: Asked) -> None:
    asking = [
        asyncio.create_task(asked.service.what_if(await who(asked, name), question(namespace=namespace)))
        for name, namespace in (("ada", "ada"), ("bob", "bob"), ("admin", "ada"))
    ]
    await asyncio.sleep(0.1)

    found = await asyncio.wait_for(asked.service.list(TRUSTED, Kind.WORKLOADS, {}), PATIENCE_SECONDS)

    assert found.items
    assert not any(one.done() for one in asking)
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.usefixtures("slow")
async def test_a_caller_has_one_question_at_a_time(asked: Asked) -> None:
    ada = await who(asked, "ada")
    first = asyncio.create_task(asked.service.what_if(ada, question()))
    await asyncio.sleep(0.1)

    for ask in (asked.service.what_if(ada, question()), asked.service.explain(ada, "ada", "w")):
        with pytest.raises(HttpError, match="ada has an explanation or what-if question") as caught:
            await ask
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "3")

    # A client that is gone has nothing running.
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await asked.service.explain(ada, "ada", "w")
