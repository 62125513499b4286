"""Which integrations are left by what an API server says of the controller's rights."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from admission.controller import external_definitions
from admission.controller.external_definitions import name_late_definitions
from admission.controller.integration_rights import with_permitted_integrations
from admission.controller.settings import Options
from api.config.external import external_kinds
from api.config.loading import load_config
from api.kube.client import Body, KubeClient
from api.kube.errors import Forbidden, NotFound, Unreachable
from api.kube.resources import Resource

LWS = "leaderworkerset.x-k8s.io/leaderworkerset"
ALL = ["batch/job", "pod", "deployment", "statefulset", LWS]
CONFIG = json.dumps(
    {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ALL},
    }
)


class Server:
    """An API server that grants all rights but these, each as "VERB PLURAL"."""

    def __init__(self, *refused: str, error: Exception | None = None) -> None:
        self._refused = refused
        self._error = error
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *, body: Body) -> bytes:
        """Answer a SelfSubjectAccessReview."""
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        if self._error is not None:
            raise self._error
        asked: dict[str, Any] = json.loads(body.data)["spec"]["resourceAttributes"]
        self.asked.append(f"{asked['verb']} {asked['resource']}")
        return json.dumps({"status": {"allowed": self.asked[-1] not in self._refused}}).encode()


async def frameworks(server: Server, *, observe: bool = False) -> list[str]:
    """Return the integrations that are left of all."""
    options = Options(config=load_config(CONFIG, source="test"), observe=observe)
    left = await with_permitted_integrations(cast(KubeClient, server), options)
    return list(left.config.kueue.integrations.frameworks)


@pytest.mark.parametrize(
    ("server", "want"),
    [
        pytest.param(Server(), ALL, id="all with all rights"),
        pytest.param(Server("watch statefulsets"), [*ALL[:3], LWS], id="all but the one without its watch"),
        pytest.param(
            Server("delete pods"), ["batch/job"], id="without pods none of what is queued through them"
        ),
        pytest.param(Server("patch jobs", "patch pods"), ["batch/job"], id="Jobs in any case"),
        pytest.param(Server(error=NotFound("no such kind")), ALL, id="all on a server that cannot say"),
    ],
)
async def test_integrations_are_left_for_which_there_are_rights(server: Server, want: list[str]) -> None:
    assert await frameworks(server) == want


async def test_to_observe_no_right_to_write_is_needed() -> None:
    server = Server("delete pods", "patch pods", "patch jobs")

    assert await frameworks(server, observe=True) == ALL
    assert {asked.split()[0] for asked in server.asked} == {"list", "watch"}


async def test_a_server_that_does_not_answer_is_an_error_of_the_start() -> None:
    with pytest.raises(Unreachable):
        await frameworks(Server(error=Unreachable("gone")))


@pytest.mark.parametrize(
    ("server", "want"),
    [
        pytest.param(Server(), True, id="with the rights"),
        pytest.param(Server("watch podgroups"), False, id="without its watch"),
    ],
)
async def test_pod_groups_are_read_where_they_are_switched_on_and_permitted(
    server: Server, want: bool
) -> None:
    text = "apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\npodGroups: true\n"
    options = Options(config=load_config(text, source="test"))

    left = await with_permitted_integrations(cast(KubeClient, server), options)

    assert left.config.berth.pod_groups is want


def trains(properties: dict[str, Any] | None) -> bytes | None:
    """Return the definition of an external kind whose spec has these properties; None if there is none."""
    schema = {"properties": {"spec": {"properties": properties}}}
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    return None if properties is None else json.dumps({"spec": {"versions": [version]}}).encode()


class ServerOfTrains(Server):
    """An API server that may have a definition of trains, and lets it be read or not."""

    def __init__(self, *refused: str, definition: bytes | None, error: Exception | None = None) -> None:
        super().__init__(*refused)
        self._definition = definition
        self._unreadable = error

    async def get(self, resource: Resource, name: str) -> bytes:
        """Answer a read of the definition."""
        assert (resource.kind, name) == ("CustomResourceDefinition", "trains.example.com")
        if self._unreadable is not None:
            raise self._unreadable
        if self._definition is None:
            raise NotFound("no such definition")
        return self._definition


class LateServer(ServerOfTrains):
    """An API server that is not reached at first, then lacks the definition, and then has it."""

    def __init__(self, definition: bytes | None) -> None:
        super().__init__(definition=definition)
        self._answers: list[Exception] = [Unreachable("gone"), NotFound("no such definition")]

    async def get(self, resource: Resource, name: str) -> bytes:
        """Answer a read of the definition."""
        if self._answers:
            raise self._answers.pop(0)
        return await super().get(resource, name)


KNOWN = {"suspend": {"type": "boolean"}, "pods": {"type": "object"}}


@pytest.mark.parametrize(
    ("server", "is_left"),
    [
        pytest.param(ServerOfTrains(definition=trains(KNOWN)), True, id="with its paths and all rights"),
        pytest.param(ServerOfTrains(definition=None), True, id="before its definition is there"),
        pytest.param(
            ServerOfTrains(definition=None, error=Forbidden("no")), True, id="whose definition cannot be read"
        ),
        pytest.param(ServerOfTrains("patch trains", definition=trains(KNOWN)), False, id="without a right"),
        pytest.param(
            ServerOfTrains(definition=trains({"pods": {}})), False, id="whose definition cannot suspend"
        ),
    ],
)
async def test_a_kind_of_the_configuration_is_left_out_if_it_could_not_be_stopped(
    server: ServerOfTrains, is_left: bool
) -> None:
    row = {"kind": "Train.v1.example.com", "podSets": [{"name": "main", "template": ".spec.pods"}]}
    settings = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "ControllerConfig",
        "integrations": {"external": [row]},
    }
    options = Options(config=load_config(json.dumps(settings), source="test"))

    left = await with_permitted_integrations(cast(KubeClient, server), options)

    assert bool(left.config.berth.integrations.external) is is_left


@pytest.mark.parametrize(
    ("properties", "want"),
    [
        pytest.param(KNOWN, 0, id="with all paths"),
        pytest.param({"pods": {}}, 1, id="that cannot suspend"),
    ],
)
async def test_a_definition_that_comes_later_is_checked_once(
    properties: dict[str, Any], want: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"kind": "Train.v1.example.com", "podSets": [{"name": "main", "template": ".spec.pods"}]}
    settings = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "ControllerConfig",
        "integrations": {"external": [row]},
    }
    kinds = external_kinds(load_config(json.dumps(settings), source="test").berth)
    monkeypatch.setattr(external_definitions, "LOOK_SECONDS", 0.0)

    await name_late_definitions(cast(KubeClient, LateServer(trains(properties))), kinds)

    named = [str(vars(one)) for one in caplog.records if one.getMessage() == "path-missing"]
    assert len(named) == want
    assert all("trains.example.com/v1 has no spec.suspend" in text for text in named)
