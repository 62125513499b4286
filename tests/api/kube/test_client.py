"""The requests of the client, and how it handles each response."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from api.kube import errors
from api.kube.client import Body, Connection, KubeClient
from api.kube.errors import KubeError
from api.kube.resources import JOBS, NODES, WORKLOADS
from tests.children import Port

from .scripted import (
    PATIENCE_SECONDS,
    Responder,
    ScriptedServer,
    answer,
    cut,
    event,
    hang,
    page,
    refuse,
    watch,
    widget,
    write_kubeconfig,
)
from .widgets import Widget

JOB_PATH = "/apis/batch/v1/namespaces/team/jobs"


async def test_get_returns_the_bytes_of_the_answer(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer(b'{"kind":"Job"}'))

    assert await client.get(JOBS, "a", "team") == b'{"kind":"Job"}'

    request = await scripted.next_request()
    assert (request.method, request.path) == ("GET", f"{JOB_PATH}/a")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["User-Agent"] == "berth-test"
    assert request.headers["Accept-Encoding"] == "identity"


async def test_create_posts_to_the_collection(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer({"metadata": {"name": "a"}}, status=201))

    await client.create(JOBS, b'{"metadata":{"name":"a"}}', "team")

    request = await scripted.next_request()
    assert (request.method, request.path, request.body) == ("POST", JOB_PATH, b'{"metadata":{"name":"a"}}')
    assert request.headers["Content-Type"] == "application/json"


async def test_a_namespaced_object_is_not_created_outside_a_namespace(client: KubeClient) -> None:
    with pytest.raises(ValueError, match="a Job is created in a namespace"):
        await client.create(JOBS, b"{}")


async def test_replace_puts_to_the_subresource(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer())

    await client.replace(WORKLOADS, "w", b"{}", "team", subresource="status")

    request = await scripted.next_request()
    assert request.method == "PUT"
    assert request.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status"


async def test_a_large_object_is_sent_whole(scripted: ScriptedServer, client: KubeClient) -> None:
    """Kueue's CRD of Workloads is over 1 MiB."""
    scripted.will(answer())

    await client.create(NODES, b"x" * 3_000_000)

    request = await scripted.next_request()
    assert (len(request.body), request.headers["Content-Length"]) == (3_000_000, "3000000")


async def test_merge_patch_says_that_it_is_one(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer())

    await client.merge_patch(NODES, "n", b'{"a":1}')

    request = await scripted.next_request()
    assert (request.method, request.path, request.body) == ("PATCH", "/api/v1/nodes/n", b'{"a":1}')
    assert request.headers["Content-Type"] == "application/merge-patch+json"


async def test_a_request_says_the_type_of_its_body_and_its_parameters(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer())

    body = Body(b"{}", "application/apply-patch+yaml")
    await client.request("PATCH", "/api/v1/nodes/n", params={"fieldManager": "berth"}, body=body)

    request = await scripted.next_request()
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.query == {"fieldManager": "berth"}


async def test_delete_sends_its_options(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer())

    await client.delete(JOBS, "a", "team", propagation="Foreground", grace_period_seconds=0)

    request = await scripted.next_request()
    assert (request.method, request.path) == ("DELETE", f"{JOB_PATH}/a")
    assert request.json() == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_delete_sends_the_callers_preconditions(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer())

    await client.delete(JOBS, "a", "team", body=b'{"preconditions":{"uid":"u"}}')

    assert (await scripted.next_request()).json() == {"preconditions": {"uid": "u"}}


# Lists


async def test_a_list_is_read_page_by_page(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(page([widget("a")], "7", token="next"), page([widget("b")], "7"))

    result = await client.list(JOBS, "team", type_=Widget, params={"labelSelector": "x=y"})

    assert [item.metadata.name for item in result.items] == ["a", "b"]
    assert (result.resource_version, result.unreadable) == ("7", ())
    assert [request.query for request in scripted.requests] == [
        {"labelSelector": "x=y", "limit": "500"},
        {"labelSelector": "x=y", "limit": "500", "continue": "next"},
    ]


async def test_a_list_whose_moment_expired_is_read_again_in_one_piece(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a"), widget("gone")], token="next"), refuse(410, "Expired"), page([widget("a")], "9")
    )

    result = await client.list(JOBS, type_=Widget)

    assert ([item.metadata.name for item in result.items], result.resource_version) == (["a"], "9")
    assert scripted.requests[-1].query == {}


async def test_an_unreadable_object_is_named_and_the_others_are_returned(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a"), widget("broken", size="many"), widget("c")]))

    result = await client.list(JOBS, type_=Widget)

    assert [item.metadata.name for item in result.items] == ["a", "c"]
    (unreadable,) = result.unreadable
    assert unreadable.key == ("team", "broken")
    assert unreadable.error == "Expected `int`, got `str` - at `$.spec.size`"


async def test_an_empty_list_may_hold_null_for_its_items(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer({"metadata": {"resourceVersion": "3"}, "items": None}))

    assert (await client.list(JOBS, type_=Widget)).items == ()


# Faults


@pytest.mark.parametrize(
    ("responder", "want_class", "want_message"),
    [
        pytest.param(
            refuse(404, "NotFound", 'jobs "a" not found'), errors.NotFound, '"a" not found', id="404"
        ),
        pytest.param(refuse(409, "Conflict"), errors.Conflict, "refused", id="409"),
        pytest.param(refuse(500, "InternalError", "etcd"), errors.ServerError, "etcd", id="500"),
        pytest.param(
            answer(b"<html>", status=502), errors.ServerError, "HTTP 502: <html>", id="a proxy's own page"
        ),
        pytest.param(
            answer(status=302, headers={"Location": "http://login"}),
            errors.ServerError,
            "redirects to http://login; give the URL of the API server itself in the test",
            id="a redirect is not followed",
        ),
        pytest.param(
            refuse(401, "Unauthorized", "Unauthorized"),
            errors.Unauthorized,
            "does not accept the credentials of the test: Unauthorized; renew them",
            id="wrong credentials name the file",
        ),
        pytest.param(cut, errors.Unreachable, "the connection broke", id="no answer at all"),
    ],
)
async def test_each_bad_answer_is_one_error(
    scripted: ScriptedServer,
    client: KubeClient,
    responder: Responder,
    want_class: type[KubeError],
    want_message: str,
) -> None:
    scripted.will(responder)

    with pytest.raises(want_class) as caught:
        await client.merge_patch(JOBS, "a", b"{}", "team")

    assert type(caught.value) is want_class
    assert want_message in caught.value.message
    assert len(scripted.requests) == 1, "nothing is retried behind the caller's back"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_request_on_a_kept_connection_that_breaks_is_not_repeated(
    scripted: ScriptedServer, client: KubeClient, method: str
) -> None:
    scripted.will(answer(), cut)
    await client.request("GET", "/")

    with pytest.raises(errors.Unreachable):
        await client.request(method, "/")

    assert len(scripted.requests) == 2


async def test_a_server_that_asks_to_wait_says_how_long(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(refuse(429, "TooManyRequests", Retry_After="7"))

    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(JOBS, "a", "team")

    assert caught.value.retry_after_seconds == 7.0


async def test_a_silent_server_is_left_in_time(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(hang)

    with pytest.raises(errors.Timeout, match=r"gave no answer to GET /version in 0\.05 s"):
        await client.request("GET", "/version", timeout_seconds=0.05)


async def test_a_refused_connection_names_server_and_file(tmp_path: Path) -> None:
    taken = Port()
    port = taken.number
    kubeconfig = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")

    async with await KubeClient.connect(kubeconfig) as client:
        with pytest.raises(errors.Unreachable) as caught:
            await client.server_version()

    message = caught.value.message
    assert message.startswith(f"cannot reach the API server http://127.0.0.1:{port} of {kubeconfig} (context")
    assert message.endswith("; check that it runs and that the address is right")
    taken.release()


async def test_a_server_that_is_no_api_server_is_recognized(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(b"hello"))

    with pytest.raises(errors.ServerError, match="the answer is no version of an API server at http"):
        await client.server_version()


async def test_a_list_that_is_no_json_is_the_servers_fault(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(b'{"items": ['))

    with pytest.raises(errors.ServerError, match="the answer is no list of objects"):
        await client.list(JOBS, type_=Widget)


async def test_a_lease_is_renewed_while_every_write_hangs(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(client.request("POST", "/write", body=Body(b"{}"))) for _ in range(80)]
        for _ in range(64):
            await scripted.next_request()
        scripted.will(answer(b"renewed"))

        renewed = await client.request(
            "PUT", "/lease", body=Body(b"{}"), lane=Connection.LEASES, timeout_seconds=PATIENCE_SECONDS
        )
        for write in writes:
            write.cancel()
    assert renewed == b"renewed"
    assert len(scripted.requests) == 65


# Watches


async def lines(client: KubeClient, idle_seconds: float = 5.0) -> list[bytes]:
    async with aclosing(client.watch("/watch", {}, idle_seconds=idle_seconds)) as stream:
        return [line async for line in stream]


async def test_lines_are_put_together_from_any_chunks(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(watch(b'{"a"', b": 1}\n{", b'"b": 2}\n\n{"c"', b": 3}\n", then="end"))

    assert await lines(client) == [b"", b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']
    assert scripted.requests[0].query == {"watch": "true"}


async def test_an_event_of_several_megabytes_arrives_whole(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    large = event("ADDED", widget("a", note="x" * 3_000_000))
    scripted.will(watch(large, then="end"))

    assert await lines(client) == [b"", large.rstrip(b"\n")]


async def test_a_line_cut_off_by_the_servers_end_is_dropped(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(watch(b'{"a": 1}\n{"half', then="end"))

    assert await lines(client) == [b"", b'{"a": 1}']


async def test_a_watch_cut_in_a_line_is_an_error(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(watch(b'{"half', then="cut"))

    with pytest.raises(errors.Unreachable, match="the connection broke"):
        await lines(client)


async def test_a_half_open_watch_is_left_in_time(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(watch(b'{"a": 1}\n', then="hang"))

    with pytest.raises(errors.Timeout, match=r"the watch of /watch was silent for 0\.05 s"):
        await lines(client, idle_seconds=0.05)


async def test_a_watch_that_never_begins_is_left_in_time(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(hang)

    with pytest.raises(errors.Timeout, match=r"did not begin the watch of /watch|was silent for 0"):
        await lines(client, idle_seconds=0.05)


async def test_a_closed_client_sends_no_request(scripted: ScriptedServer) -> None:
    client = KubeClient(scripted.endpoint)
    await client.close()

    with pytest.raises(errors.Unreachable, match=r"the client of http://.* is closed"):
        await client.get(JOBS, "a", "team")
    assert scripted.requests == []


async def test_a_refused_watch_is_the_same_error_as_a_refused_request(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(refuse(403, "Forbidden", "may not watch"))

    with pytest.raises(errors.Forbidden, match="may not watch"):
        await lines(client)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has it")
async def test_a_peer_that_acknowledges_nothing_is_given_up_long_before_a_slow_server(
    scripted: ScriptedServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *args: object, **fields: object) -> None:
            super().__init__(*args, **fields)  # type: ignore[arg-type]  # passed on as they came
            made.append(self)

    monkeypatch.setattr("api.kube.client.socket.socket", Noted)
    scripted.will(answer(b"{}"))

    await client.get(JOBS, "a", "team")

    # The client's, and then what the server accepts.
    used = made[0]
    assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5_000
    assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
