"""Which integrations are left by what an API server says of the controller's rights."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from admission.controller.integration_rights import with_permitted_integrations
from admission.controller.settings import Options
from api.config.loading import load_config
from api.kube.client import Body, KubeClient
from api.kube.errors import NotFound, Unreachable

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
