"""Reports in a controller: what the API server is asked, how often, and what happens when it is silent."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgspec
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.http.checkpoint_reports import CheckpointReports
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from api import keys
from api.http.server import HttpError, Request
from api.keys import CHECKPOINT_STEP, CHECKPOINT_TIME
from api.kube.client import Body, KubeClient
from api.kube.errors import Conflict, KubeError, TooManyRequests, Unreachable
from api.kube.informer import ChangeType
from api.parsing.times import to_rfc3339
from tests.admission.controller.fakes import FakeClock, FakeRecorder
from tests.admission.controller.known import Known, made, workload_object
from tests.integration.waiting import PATIENCE_SECONDS

NOW = 1_769_860_800.0
_KINDS = {"jobs": "Job", "pods": "Pod", "workloads": "Workload"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train", "controller": True}


def job(version: str = "", **annotations: str) -> dict[str, Any]:
    """Return the Job of the test's pod."""
    body = made("Job", "train", "team", version="batch/v1", annotations=annotations, spec={}, status={})
    body["metadata"] |= {"uid": "train", **({"resourceVersion": version} if version else {})}
    return body


class FakeApi:
    """Answers reviews, reads of the pod and of the Job, and patches; the next ones fail where asked to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.patches: list[dict[str, Any]] = []
        self.failures: dict[str, list[KubeError]] = {}
        self.job = job("1")
        self.accepts = True
        self.is_queued = False
        self.pod_uid = "p"
        self.owner: dict[str, Any] = OWNER
        self.stored_on: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(self, method: str, path: str, *, body: Body | None = None, **_: Any) -> bytes:
        if method == "PATCH":
            assert body is not None
            return await self._patch(path, body)
        word = path.rpartition("/")[2]
        self.asked.append(word)
        if failures := self.failures.get(word):
            raise failures.pop(0)
        if word == "tokenreviews":
            extra = {f"authentication.kubernetes.io/pod-{one}": ["p"] for one in ("name", "uid")}
            user = {"username": "system:serviceaccount:team:trainer", "extra": extra}
            return msgspec.json.encode({"status": {"authenticated": self.accepts, "user": user}})
        if word == "p":
            owners = [] if self.is_queued else [self.owner]
            return msgspec.json.encode(
                {"metadata": {"name": "p", "uid": self.pod_uid, "ownerReferences": owners}}
            )
        assert (method, word) == ("GET", "train")
        return msgspec.json.encode(self.job)

    async def _patch(self, path: str, body: Body) -> bytes:
        namespace, plural, name = path.split("/")[-3:]
        self.stored_on.append(f"{_KINDS[plural]} {namespace}/{name}")
        self.asked.append("patch")
        await self.gate.wait()
        if failures := self.failures.get("patch"):
            raise failures.pop(0)
        self.patches.append(msgspec.json.decode(body.data)["metadata"]["annotations"])
        return body.data


class Door:
    """The route, and the API server behind it."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.known = Known(settings=ClusterStateSettings(with_pods=True))
        self.known.tell(job())
        self.known.tell(workload_object("w", "team", "lq", owners=[OWNER]))
        self.metrics = Metrics(version="test")
        self.clock = FakeClock(NOW)
        self.reports = CheckpointReports(
            cast("KubeClient", self.api),
            self.clock,
            self.known.cluster_state,
            EventReporter(FakeRecorder()),
            observe=self.metrics.count_checkpoint_report,
            is_ready=lambda: True,
        )

    async def post(self, ago: float = 10, step: int = 1, *, token: str = "", address: str = "pod") -> int:
        """Return the status of the answer to a report."""
        body = msgspec.json.encode({"step": step, "time": to_rfc3339(NOW - ago)})
        headers = {"authorization": f"Bearer {token or make_token()}"}
        request = Request(
            method="POST", path="/v1/checkpoints", headers=headers, body=body, client_address=address
        )
        return (await self.refusal(request))[0]

    async def refusal(self, request: Request) -> tuple[int, Mapping[str, str]]:
        """Return status and headers of an answer."""
        route = self.reports.routes()[0]
        try:
            answer = await route.handler(request)
        except HttpError as error:
            return error.status, error.headers
        return answer.status, answer.headers  # type: ignore[union-attr]

    def counted(self, result: str) -> float:
        """Return how many reports had this result."""
        value = self.metrics.registry.get_sample_value(
            "berth_checkpoint_reports_total", {"replica_role": "follower", "result": result}
        )
        return value or 0.0


def make_token(mark: str = "", *, holds_for: float = 3600) -> str:
    """Return what looks like a pod's token."""
    subject = f"system:serviceaccount:team:trainer{mark}"
    claims = {"sub": subject, "exp": NOW + holds_for, "aud": ["berth.dev"]}
    payload = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    """Give a door that stores."""
    made = Door()
    task = asyncio.create_task(made.reports.run())
    yield made
    task.cancel()
    await asyncio.wait([task])


async def test_many_reports_cost_one_review(door: Door) -> None:
    assert [await door.post(ago) for ago in (30, 20, 10)] == [200, 200, 200]

    assert door.api.asked.count("tokenreviews") == door.api.asked.count("p") == 1
    assert set(door.api.stored_on) == {"Job team/train"}
    assert [one[CHECKPOINT_TIME] for one in door.api.patches] == [to_rfc3339(NOW - n) for n in (30, 20, 10)]


async def test_a_token_is_known_for_no_longer_than_it_holds(door: Door) -> None:
    token = make_token(holds_for=20)
    assert await door.post(30, token=token) == 200

    door.clock.at = NOW + 21

    assert await door.post(20, token=token) == 401
    assert door.counted("unauthenticated") == 1


async def test_a_token_that_was_refused_may_be_good_a_moment_later(door: Door) -> None:
    """The server that was asked may not have received a new pod yet."""
    door.api.accepts = False
    assert await door.post() == 401
    door.api.accepts = True

    assert await door.post() == 401
    door.clock.at = NOW + 11
    assert await door.post() == 200


async def test_a_pod_that_took_the_name_of_another_does_not_inherit_its_token(door: Door) -> None:
    door.api.pod_uid = "successor"

    assert await door.post() == 401
    assert door.api.patches == []


async def test_reports_that_come_while_one_is_written_are_one_write(door: Door) -> None:
    await door.post(50)
    door.api.gate.clear()
    reports = [asyncio.create_task(door.post(ago, step=100 - ago)) for ago in (40, 10, 30, 20)]
    while door.api.asked.count("patch") != 2:
        await asyncio.sleep(0)
    door.api.gate.set()

    assert set(await asyncio.gather(*reports)) <= {200, 409}
    assert len(door.api.patches) <= 3
    assert door.api.patches[-1][CHECKPOINT_STEP] == "90"


async def test_a_client_that_hangs_up_does_not_affect_another_answer(door: Door) -> None:
    await door.post(50)
    door.api.gate.clear()
    first = asyncio.create_task(door.post(40, step=60))
    while door.api.asked.count("patch") != 2:
        await asyncio.sleep(0)
    # These two are gathered for the next write.
    hasty, patient = (asyncio.create_task(door.post(ago, step=100 - ago)) for ago in (30, 20))
    while door.reports._writer._waiting != 3:
        await asyncio.sleep(0)

    hasty.cancel()
    door.api.gate.set()

    assert (await first, await patient) == (200, 200)
    assert door.api.patches[-1][CHECKPOINT_STEP] == "80"


async def test_where_too_many_wait_to_be_written_the_next_is_to_come_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission.controller.http.checkpoint_writer.MOST_WAITING", 1)
    await door.post(50)
    door.api.gate.clear()
    first = asyncio.create_task(door.post(40))
    while door.api.asked.count("patch") != 2:
        await asyncio.sleep(0)

    assert await asyncio.wait_for(door.post(30), timeout=PATIENCE_SECONDS) == 503
    assert door.counted("unavailable") == 1
    door.api.gate.set()
    assert await first == 200


@pytest.mark.covers("004_27")
async def test_a_checkpoint_that_another_replica_has_stored_is_not_taken_back(door: Door) -> None:
    door.api.failures["patch"] = [Conflict("old", status=409)]
    door.api.job = job("2", **{CHECKPOINT_TIME: to_rfc3339(NOW - 5)})

    assert await door.post(10) == 409

    assert door.api.patches == []
    assert door.counted("outdated") == 1


@pytest.mark.parametrize("call", ["tokenreviews", "p", "patch"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("no answer"), id="does not answer"),
        pytest.param(TooManyRequests("later", status=429, retry_after_seconds=3), id="asks for a pause"),
    ],
)
async def test_a_report_is_to_come_again_when_the_server(door: Door, call: str, error: KubeError) -> None:
    door.api.failures[call] = [error]

    assert await door.post() == 503
    assert await door.post() == 200, "nothing of the failure is remembered"


async def test_an_address_that_floods_with_forged_tokens_does_not_stop_others(door: Door) -> None:
    door.api.accepts = False
    refused = [await door.post(token=make_token(str(n)), address="attacker") for n in range(60)]
    door.api.accepts = True

    assert refused.count(429) >= 30
    assert await door.post(address="another") == 200


async def test_a_throttled_report_gets_the_time_to_retry(door: Door) -> None:
    door.reports._is_ready = lambda: False

    status, headers = await door.refusal(Request(method="POST", path="/v1/checkpoints"))

    assert (status, headers) == (503, {"Retry-After": "1"})


async def test_a_job_that_is_gone_has_no_checkpoints(door: Door) -> None:
    await door.post(50)
    door.known.tell(job(), ChangeType.DELETED)

    assert await door.post() == 403


async def test_a_pod_that_names_another_tenants_job_as_its_owner_changes_nothing(door: Door) -> None:
    others, door.api.owner = job(), {**OWNER, "uid": "theirs"}
    others["metadata"] |= {"namespace": "other", "uid": "theirs"}
    door.known.tell(others)
    # It is a Job like any that Berth manages.
    door.known.tell(workload_object("theirs", "other", "lq", owners=[door.api.owner]))

    assert await door.post() == 403
    assert door.api.patches == []


# --- pods that are queued themselves -------------------------------------------------------------

IN_GROUP = {"labels": {keys.MANAGED: "true", keys.POD_GROUP_NAME: "g"}}
OF_GROUP = {"annotations": {keys.IS_GROUP_WORKLOAD: "true"}}
BY_ITSELF = {"labels": {keys.MANAGED: "true"}}
OWNED = {"owners": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}]}
HELD = {"schedulingGates": [{"name": keys.ADMISSION_GATE}]}


@pytest.mark.parametrize(
    ("pod", "workload", "want"),
    [
        pytest.param(BY_ITSELF, OWNED, "Pod team/p", id="of a pod by itself on the pod"),
        pytest.param(IN_GROUP, OF_GROUP, "Workload team/g", id="of a member on its group's Workload"),
        pytest.param(IN_GROUP, {}, "", id="nowhere where the group has the name of another's Workload"),
        pytest.param(BY_ITSELF, OF_GROUP, "", id="nowhere where it has no Workload"),
        pytest.param({}, OWNED, "", id="nowhere where it was never gated"),
    ],
)
async def test_a_report_is_stored(
    door: Door, pod: dict[str, Any], workload: dict[str, Any], want: str
) -> None:
    door.api.is_queued = True
    created = "2026-01-01T00:00:00Z"
    door.known.tell(made("Pod", "p", "team", version="v1", created=created, spec=HELD, status={}, **pod))
    door.known.tell(workload_object("g", "team", "lq", **workload))

    assert await door.post() == (200 if want else 403)

    assert door.api.stored_on == ([want] if want else [])


async def test_a_report_that_is_older_than_what_the_group_knows_is_a_conflict(door: Door) -> None:
    door.api.is_queued = True
    door.known.tell(
        made(
            "Pod", "p", "team", version="v1", created="2026-01-01T00:00:00Z", spec=HELD, status={}, **IN_GROUP
        )
    )
    known = {**OF_GROUP["annotations"], CHECKPOINT_TIME: to_rfc3339(NOW - 5)}
    door.known.tell(workload_object("g", "team", "lq", annotations=known))

    assert await door.post(10) == 409
    assert door.api.patches == []
