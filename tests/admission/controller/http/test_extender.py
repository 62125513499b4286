"""The scheduler extender as kube-scheduler meets it: over HTTP, with a cluster behind it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import fakeredis
import pytest

from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.http.extender import MOST_NODES_LOGGED, Extender, render_error
from admission.controller.http.shared_fabrics import REST_SECONDS, SharedFabrics
from admission.placement.training_jobs import TrainingJob
from api.http.server import HttpServer
from api.kube.client import KubeClient
from queues.store.fabric_choices import FabricChoices
from queues.store.faults import StoreLocation
from queues.store.seal import Seal
from tests.admission.controller.extending import (
    A100,
    MODEL,
    PATIENCE_SECONDS,
    THREE_NODES,
    Object,
    Served,
    node_object,
    pod_object,
    raise_error,
    serving,
    whole,
)
from tests.admission.controller.fakes import FakeClock
from tests.embedded import EmbeddedCluster

NAMES = ("node-a", "node-b", "node-c")


@pytest.fixture
async def served(embedded_server: EmbeddedCluster) -> AsyncIterator[Served]:
    """Give an extender beside the three nodes of the acceptance test."""
    async with serving(embedded_server.kubeconfig, THREE_NODES) as served:
        yield served


# --- the protocol --------------------------------------------------------------------------------


@pytest.mark.covers("000_01")
@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_both_verbs_are_posted_to_and_answer_json(served: Served, path: str) -> None:
    answer = await served.post(path, {"Pod": pod_object(), "NodeNames": NAMES})

    assert (answer.status, answer.content_type) == (200, "application/json")
    assert (await served.get(path)).status == 405


@pytest.mark.covers("000_03")
@pytest.mark.parametrize(
    ("pod", "nodes", "names"),
    [
        pytest.param("pod", "nodes", "nodeNames", id="as the types are documented"),
        pytest.param("Pod", "Nodes", "NodeNames", id="as kube-scheduler writes them"),
        pytest.param("pod", "nodes", "nodenames", id="as old ones wrote them"),
    ],
)
async def test_the_arguments_keys_are_taken_in_every_case(
    served: Served, pod: str, nodes: str, names: str
) -> None:
    wanted = pod_object(model=A100)

    by_name = (await served.post("/filter", {pod: wanted, nodes: None, names: NAMES})).json
    in_whole = (await served.post("/filter", {pod: wanted, nodes: {"items": THREE_NODES}, names: None})).json

    assert by_name["nodeNames"] == ["node-a", "node-b"]
    assert [node["metadata"]["name"] for node in in_whole["nodes"]["items"]] == ["node-a", "node-b"]


@pytest.mark.covers("000_04")
async def test_a_filter_of_whole_nodes_answers_with_the_nodes_as_they_came(served: Served) -> None:
    answer = await served.filter(pod_object(model=A100), THREE_NODES)

    assert answer == {
        "nodes": {"items": list(THREE_NODES[:2])},
        "failedNodes": {"node-c": "GPU model mismatch"},
        "failedAndUnresolvableNodes": {"node-c": "GPU model mismatch"},
    }


@pytest.mark.covers("000_04")
@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param({"NodeNames": ["node-a"]}, {"nodeNames": ["node-a"]}, id="names where all pass"),
        pytest.param({"NodeNames": []}, {"nodeNames": []}, id="no names"),
        pytest.param({"Nodes": {"items": None}}, {"nodes": {"items": []}}, id="no nodes"),
    ],
)
async def test_empty_fields_of_a_filters_answer_are_left_out(
    served: Served, arguments: Object, want: Object
) -> None:
    assert (await served.post("/filter", {"Pod": pod_object(model=A100), **arguments})).json == want


@pytest.mark.covers("000_05")
async def test_prioritize_answers_a_list_of_hosts_with_scores_from_0_to_10(served: Served) -> None:
    answer = (await served.post("/prioritize", {"Pod": pod_object(gpus=1), "NodeNames": NAMES})).json

    assert answer == [
        {"host": "node-a", "score": 10},
        {"host": "node-b", "score": 1},
        {"host": "node-c", "score": 10},
    ]


@pytest.mark.covers("000_06")
async def test_a_body_that_cannot_be_read_is_a_500(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"POST /filter HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nabcdef"
    )
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"\r\n\r\nFailed to read request body")


@pytest.mark.covers("000_07")
@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"pod": {', id="cut off"),
        pytest.param(b'{"pod": 7}', id="a pod that is a number"),
        pytest.param(b'{"pod": ' + b"[" * 99_999, id="a pod nested too deep"),
        pytest.param(b'{"pod": {"metadata": {"name": "\xff"}}}', id="no UTF-8"),
        pytest.param(b'{"pod": {}, "nodes": {"items": [{"metadata": 1}]}}', id="a node that is none"),
        pytest.param(json.dumps({"Pod": pod_object(gpus="many"), "NodeNames": []}).encode(), id="a quantity"),
    ],
)
async def test_what_is_no_request_is_a_400(served: Served, path: str, body: bytes) -> None:
    answer = await served.post(path, body)

    assert (answer.status, answer.text) == (400, "Failed to unmarshal request")


@pytest.mark.covers("000_08", "000_09")
@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/filter", "Invalid request: pod or nodes missing"),
        ("/prioritize", "Invalid request: pod or nodeNames missing"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"NodeNames": ["node-a"]}, id="no pod"),
        pytest.param({"Pod": None, "Nodes": {"items": []}}, id="a null pod"),
        pytest.param({"Pod": {}}, id="no nodes"),
        pytest.param({"Pod": {}, "Nodes": None, "NodeNames": None}, id="nulls"),
    ],
)
async def test_a_request_without_pod_or_nodes_is_a_400(
    served: Served, path: str, want: str, body: Object
) -> None:
    answer = await served.post(path, body)

    assert (answer.status, answer.text) == (400, want)


@pytest.mark.covers("000_10")
async def test_an_answer_that_cannot_be_written_is_a_500(embedded_server: EmbeddedCluster) -> None:
    def fail(value: Any) -> bytes:
        raise TypeError(f"cannot encode {value}")

    async with serving(embedded_server.kubeconfig, encode=fail) as served:
        answer = await served.post("/filter", {"Pod": {}, "NodeNames": []})

    assert (answer.status, answer.text) == (500, "Failed to marshal response")


async def test_whole_nodes_are_scored_by_their_own_labels(served: Served) -> None:
    nodes = [node_object("new", numa="1"), node_object("node-a", numa="0")]

    answer = (await served.post("/prioritize", whole(pod_object(gpus=1, numa="1"), nodes))).json

    assert answer == [{"host": "new", "score": 10}, {"host": "node-a", "score": 1}]


@pytest.mark.covers("000_41")
async def test_nothing_is_answered_before_the_caches_have_synced(embedded_server: EmbeddedCluster) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        extender = Extender(NodePodWatch(client, raise_error), FakeClock())
        async with HttpServer(extender.routes(), render_error=render_error) as server:
            answer = await Served(extender, server, client).post("/filter", {"Pod": {}, "NodeNames": []})

    assert (answer.status, answer.text) == (503, "waiting for nodes, pods")


@pytest.mark.covers("000_41")
async def test_answers_need_no_api_server_once_synced(embedded_server: EmbeddedCluster) -> None:
    async with serving(embedded_server.kubeconfig, THREE_NODES, on_error=lambda *_: None) as served:
        await embedded_server.stop()

        assert await served.scores(pod_object(gpus=1), *NAMES) == {"node-a": 10, "node-b": 1, "node-c": 10}


# --- GPU models ----------------------------------------------------------------------------------


@pytest.mark.covers("000_14", "000_15")
@pytest.mark.parametrize(("model", "want"), [(A100, ["a"]), ("Tesla-T4", ["t"]), ("L4", [])])
async def test_the_label_of_the_pod_is_compared_with_the_label_of_the_node(
    served: Served, model: str, want: list[str]
) -> None:
    nodes = [node_object("a", model=A100), node_object("t", model="Tesla-T4")]

    answer = await served.filter(pod_object(model=model), nodes)

    assert [node["metadata"]["name"] for node in answer["nodes"]["items"]] == want


@pytest.mark.covers("000_16")
async def test_a_pod_that_names_no_model_passes_every_node_unchanged(served: Served) -> None:
    nodes = [*THREE_NODES, node_object("bare")]

    assert await served.filter(pod_object(gpus=1), nodes) == {"nodes": {"items": nodes}}


@pytest.mark.covers("000_17")
async def test_models_are_compared_without_regard_to_case(served: Served) -> None:
    answer = await served.filter(pod_object(model=A100.lower()), THREE_NODES)

    assert answer["failedNodes"].keys() == {"node-c"}


@pytest.mark.covers("000_18", "000_19")
@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param(node_object("n"), "Node does not have a GPU model label", id="no label"),
        pytest.param(node_object("n", model=""), "Node does not have a GPU model label", id="an empty label"),
        pytest.param(node_object("n", model="H100"), "GPU model mismatch", id="another model"),
    ],
)
async def test_a_node_that_fails_gets_a_reason(served: Served, node: Object, want: str) -> None:
    answer = await served.filter(pod_object(model=A100), [node])

    assert answer["failedNodes"] == {"n": want}


async def test_a_node_that_is_not_known_fails_a_pod_that_names_a_model(served: Served) -> None:
    answer = await served.post("/filter", {"Pod": pod_object(model=A100), "NodeNames": ["node-a", "new"]})

    assert answer.json["nodeNames"] == ["node-a"]
    assert answer.json["failedNodes"] == {"new": "Node is not known to the extender"}


async def test_a_node_with_a_changed_label_is_judged_by_its_new_label(
    served: Served, embedded_server: EmbeddedCluster
) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        from api.kube import resources

        patch = json.dumps({"metadata": {"labels": {MODEL: A100}}}).encode()
        await client.merge_patch(resources.NODES, "node-c", patch)

    async with asyncio.timeout(PATIENCE_SECONDS):
        while (
            "failedNodes"
            in (await served.post("/filter", {"Pod": pod_object(model=A100), "NodeNames": NAMES})).json
        ):
            await asyncio.sleep(0.01)


@pytest.mark.covers("001_41")
@pytest.mark.parametrize(
    ("seconds", "want"), [(0.061, ["Filter consumed 61ms for pod team/train"]), (0.04, [])]
)
async def test_a_filter_that_takes_long_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture, seconds: float, want: list[str]
) -> None:
    caplog.set_level(logging.WARNING, "berth.extender")
    readings = iter((100.0, 100.0 + seconds))
    served.extender._clock.monotonic = lambda: next(readings)  # type: ignore[method-assign]

    await served.filter(pod_object("train", namespace="team"), THREE_NODES)

    assert caplog.messages == want


@pytest.mark.covers("000_20", "000_21")
async def test_a_filter_logs_the_request_and_the_outcome(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "berth.extender")

    await served.filter(pod_object("train", namespace="team", model=A100), THREE_NODES)

    assert caplog.messages == [
        f"Pod team/train requests GPU model: {A100}",
        "Filtering complete. Passed nodes: 2, Failed nodes: 1",
    ]


# --- NUMA ----------------------------------------------------------------------------------------


@pytest.mark.covers("000_24", "000_26")
async def test_the_preferred_numa_node_scores_10_and_all_others_1(served: Served) -> None:
    nodes = [node_object("zero", numa="0"), node_object("one", numa="1"), node_object("bare")]

    answer = (await served.post("/prioritize", whole(pod_object(gpus=2), nodes))).json

    assert [(one["host"], one["score"]) for one in answer] == [("zero", 10), ("one", 1), ("bare", 1)]


@pytest.mark.covers("000_25")
@pytest.mark.parametrize("given", [{}, {"gpus": "0"}, {"numa": "0"}], ids=str)
async def test_a_pod_without_gpus_scores_0_everywhere(served: Served, given: Object) -> None:
    assert await served.scores(pod_object(**given), *NAMES) == dict.fromkeys(NAMES, 0)


@pytest.mark.covers("000_27")
@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, {"node-a": 10, "node-b": 1}, id="0 by default"),
        pytest.param({"numa": "1"}, {"node-a": 1, "node-b": 10}, id="as the annotation says"),
        pytest.param({"numa": "7"}, {"node-a": 1, "node-b": 1}, id="one that no node has"),
    ],
)
async def test_the_preferred_numa_node_is_0_or_what_the_annotation_says(
    served: Served, given: Object, want: dict[str, int]
) -> None:
    assert await served.scores(pod_object(gpus=1, **given), "node-a", "node-b") == want


@pytest.mark.covers("000_28")
async def test_prioritizing_logs_the_pod_and_each_node(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "berth.extender")

    await served.scores(pod_object("train", namespace="team", gpus=1), "node-a", "node-b")

    assert caplog.messages == [
        "Prioritizing nodes for GPU pod team/train",
        "Node node-a gets high priority (score 10) for NUMA affinity",
        "Node node-b gets low priority (score 1) due to lack of NUMA affinity",
    ]


@pytest.mark.covers("000_28")
@pytest.mark.parametrize(("level", "want"), [(logging.INFO, 1), (logging.DEBUG, MOST_NODES_LOGGED + 2)])
async def test_of_many_nodes_each_is_logged_for_debugging_alone(
    served: Served, caplog: pytest.LogCaptureFixture, level: int, want: int
) -> None:
    caplog.set_level(level, "berth.extender")

    await served.scores(pod_object(gpus=1), *(f"n{index}" for index in range(MOST_NODES_LOGGED + 1)))

    assert len(caplog.messages) == want


@pytest.mark.covers("000_29")
async def test_every_name_has_one_score_in_the_order_asked(served: Served) -> None:
    names = ["node-c", "unknown", "node-a", "node-b", "node-a"]

    answer = (await served.post("/prioritize", {"Pod": pod_object(gpus=1), "NodeNames": names})).json

    assert [one["host"] for one in answer] == names
    assert [one["score"] for one in answer] == [10, 1, 10, 1, 10]


@pytest.mark.parametrize(
    ("init", "containers", "want"),
    [
        pytest.param([], [{}, {"gpu": 1}], 10, id="the second container"),
        pytest.param([{"gpu": 1}], [{}], 10, id="an init container"),
        pytest.param([], [], 0, id="no container at all"),
        pytest.param([{}], [{"other": 1}], 0, id="another resource"),
    ],
)
async def test_gpus_are_looked_for_in_all_containers(
    served: Served, init: list[Object], containers: list[Object], want: int
) -> None:
    words = {"gpu": "nvidia.com/gpu", "other": "example.com/fpga"}

    def made(container: Object) -> Object:
        return {"resources": {"limits": {words[key]: value for key, value in container.items()}}}

    spec = {"initContainers": [made(one) for one in init], "containers": [made(one) for one in containers]}

    assert await served.scores({"spec": spec}, "node-a") == {"node-a": want}


# --- training jobs -------------------------------------------------------------------------------

FABRICS = (
    node_object("f1-a", fabric="fabric-1", numa="0"),
    node_object("f1-b", fabric="fabric-1", numa="1"),
    node_object("f2-a", fabric="fabric-2", numa="0"),
    node_object("bare", numa="0"),
)
ALL = ("f1-a", "f1-b", "f2-a", "bare")


def shared_in(redis: fakeredis.FakeServer, *, clock: FakeClock | None = None) -> SharedFabrics:
    """Return what one replica knows of the agreement in this Redis."""
    client = fakeredis.FakeAsyncRedis(server=redis)
    # A busy machine may hold up a call.
    choices = FabricChoices(client, place=StoreLocation(address="test"), call_seconds=10.0)
    choices.seal = Seal(["0" * 32], cluster="test")
    return SharedFabrics(choices, clock or FakeClock())


@pytest.fixture
async def fabrics(embedded_server: EmbeddedCluster) -> AsyncIterator[Served]:
    """Give an extender beside nodes in two fabrics and one in none."""
    async with serving(embedded_server.kubeconfig, FABRICS) as served:
        yield served


@pytest.mark.covers("000_30", "000_33")
async def test_later_pods_of_a_job_are_drawn_into_the_fabric_of_its_first(fabrics: Served) -> None:
    await fabrics.bind(pod_object("first", job="j", gpus=1, node="f1-a"))

    scores = await fabrics.scores(pod_object("second", job="j", gpus=1), *ALL)

    assert scores == {"f1-a": 10, "f1-b": 10, "f2-a": 1, "bare": 1}


@pytest.mark.covers("000_30", "000_34")
@pytest.mark.parametrize(
    "other",
    [{"job": "other"}, {"job": "j", "namespace": "default"}, {}],
    ids=["another job", "the same id of another tenant", "no job"],
)
async def test_pods_of_other_jobs_are_not(fabrics: Served, other: Object) -> None:
    await fabrics.bind(pod_object("first", namespace="kube-public", job="j", gpus=1, node="f2-a"))

    scores = await fabrics.scores(pod_object("second", gpus=1, **other), "f1-a", "f1-b", "f2-a")

    assert scores["f1-a"] == 10
    assert scores["f1-b"] == 1
    assert scores["f2-a"] >= 9


@pytest.mark.covers("000_34")
async def test_a_job_in_two_fabrics_is_drawn_into_both(fabrics: Served) -> None:
    await fabrics.bind(pod_object("first", job="j", node="f1-a"))
    await fabrics.bind(pod_object("second", job="j", node="f2-a"))

    assert await fabrics.scores(pod_object("third", job="j"), *ALL) == {
        "f1-a": 10,
        "f1-b": 10,
        "f2-a": 10,
        "bare": 1,
    }


@pytest.mark.covers("000_31")
async def test_the_first_pods_fabric_is_remembered_before_it_is_bound(fabrics: Served) -> None:
    first = await fabrics.scores(pod_object("first", job="j", gpus=1), *ALL)
    second = await fabrics.scores(pod_object("second", job="j", gpus=1), *ALL)

    assert first == {"f1-a": 10, "f1-b": 1, "f2-a": 9, "bare": 9}
    assert second == {"f1-a": 10, "f1-b": 10, "f2-a": 1, "bare": 1}


@pytest.mark.covers("000_31")
async def test_a_second_replica_expects_the_fabric_that_the_first_has_chosen(
    embedded_server: EmbeddedCluster,
) -> None:
    redis = fakeredis.FakeServer()
    async with (
        serving(embedded_server.kubeconfig, FABRICS, shared=shared_in(redis)) as one,
        serving(embedded_server.kubeconfig, shared=shared_in(redis)) as other,
    ):
        await one.scores(pod_object("first", job="j", gpus=1), *ALL)
        # Asked about nodes among which it would choose another fabric by itself.
        second = await other.scores(pod_object("second", job="j", gpus=1), "f1-a", "f2-a")
        elsewhere = await other.scores(pod_object("third", job="k", gpus=1), *ALL)

    assert second == {"f1-a": 10, "f2-a": 1}
    assert elsewhere["f1-a"] == 10, "another job chooses by itself"


@pytest.mark.covers("000_31")
async def test_the_first_of_two_choices_counts() -> None:
    redis = fakeredis.FakeServer()
    one, other = shared_in(redis), shared_in(redis)

    assert await one.choose(TrainingJob("team", "j"), "f1") == "f1"
    assert await other.choose(TrainingJob("team", "j"), "f2") == "f1"
    assert await other.choose(TrainingJob("else", "j"), "f2") == "f2"


async def test_a_choice_that_another_program_wrote_is_no_choice() -> None:
    redis = fakeredis.FakeServer()
    await fakeredis.FakeAsyncRedis(server=redis).set("berth:{default}:fabric:team/j", b"forged")

    assert await shared_in(redis).chosen(TrainingJob("team", "j")) == ""


async def test_without_its_store_a_replica_expects_by_itself_and_asks_it_again_later() -> None:
    redis, clock = fakeredis.FakeServer(), FakeClock()
    redis.connected = False
    shared = shared_in(redis, clock=clock)
    assert await shared.choose(TrainingJob("team", "j"), "f1") == "f1"
    redis.connected = True
    assert await shared.chosen(TrainingJob("team", "j")) == ""

    clock.at += REST_SECONDS

    assert await shared.choose(TrainingJob("team", "j"), "f2") == "f2"
    assert await shared.chosen(TrainingJob("team", "j")) == "f2"


@pytest.mark.covers("000_31")
async def test_where_the_first_pod_went_counts_more_than_where_it_was_sent(fabrics: Served) -> None:
    await fabrics.scores(pod_object("first", job="j", gpus=1), *ALL)
    await fabrics.bind(pod_object("first", job="j", gpus=1, node="f2-a"))

    assert (await fabrics.scores(pod_object("second", job="j", gpus=1), *ALL))["f2-a"] == 10


@pytest.mark.covers("000_32")
async def test_a_restarted_extender_knows_where_jobs_are(embedded_server: EmbeddedCluster) -> None:
    async with serving(embedded_server.kubeconfig, FABRICS) as served:
        await served.bind(pod_object("first", job="j", gpus=1, node="f2-a"))

    async with serving(embedded_server.kubeconfig) as served:
        scores = await served.scores(pod_object("second", job="j", gpus=1), *ALL)

    assert scores == {"f1-a": 1, "f1-b": 1, "f2-a": 10, "bare": 1}


@pytest.mark.covers("000_32")
async def test_a_job_whose_pods_are_gone_may_begin_anywhere(fabrics: Served) -> None:
    first = pod_object("first", job="j", gpus=1, node="f2-a")
    await fabrics.bind(first)
    await fabrics.end(first)

    assert (await fabrics.scores(pod_object("second", job="j", gpus=1), *ALL))["f1-a"] == 10


@pytest.mark.covers("000_35")
async def test_where_jobs_are_can_be_seen_from_outside(fabrics: Served) -> None:
    await fabrics.bind(pod_object("first", job="j", node="f1-a"))
    await fabrics.bind(pod_object("second", job="j", node="bare"))

    assert (await fabrics.get("/v1/trainingjobs")).json == {
        "items": [
            {
                "namespace": "default",
                "id": "j",
                "nodes": {"bare": 1, "f1-a": 1},
                "fabrics": ["fabric-1"],
            }
        ]
    }


# --- the whole -----------------------------------------------------------------------------------


@pytest.mark.covers("000_46")
async def test_the_acceptance_test_of_the_article(served: Served) -> None:
    pod = pod_object(model=A100, gpus=1)

    passed = (await served.filter(pod, THREE_NODES))["nodes"]["items"]
    scores = await served.scores(pod, *(node["metadata"]["name"] for node in passed))

    assert scores == {"node-a": 10, "node-b": 1}
