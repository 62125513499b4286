"""Tokens of ServiceAccounts, requested and reviewed: the same on the embedded and on the real server."""

from __future__ import annotations

from typing import Any

import pytest

from .raw import Answer, RawApi, pod

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def make_account(api: RawApi, name: str) -> str:
    """Create a ServiceAccount; return the path where its tokens are asked for."""
    await api.create(api.path("serviceaccounts"), {"metadata": {"name": name}})
    return api.path("serviceaccounts", name, subresource="token")


async def make_pod(api: RawApi, name: str, account: str) -> str:
    """Create a pod that runs as the account; return its uid."""
    made = await api.create(api.path("pods"), pod(name, serviceAccountName=account))
    return str(made["metadata"]["uid"])


def request(*, pod: str = "", uid: str = "", **spec: Any) -> dict[str, Any]:
    """Return a TokenRequest, bound to a pod where one is named."""
    bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}} if pod else {}
    return {"spec": {"audiences": ["berth.dev"], **bound, **spec}}


async def review(api: RawApi, token: str, *audiences: str) -> dict[str, Any]:
    """Return what a TokenReview finds."""
    answer = await api.call("POST", REVIEWS, {"spec": {"token": token, "audiences": audiences}})
    assert answer.status == 201, answer.body
    status: dict[str, Any] = answer.body["status"]
    return status


async def test_a_token_of_a_pod_names_its_account_and_pod(api: RawApi) -> None:
    path = await make_account(api, "trainer")
    uid = await make_pod(api, "p", "trainer")
    given = await api.call("POST", path, request(pod="p", uid=uid))
    assert given.status == 201, given.body

    found = await review(api, given.body["status"]["token"], "berth.dev", "elsewhere")

    assert found["authenticated"] is True
    assert found["audiences"] == ["berth.dev"]
    assert found["user"]["username"] == f"system:serviceaccount:{api.namespace}:trainer"
    assert "system:authenticated" in found["user"]["groups"]
    extra = found["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [uid]


async def test_a_token_without_an_audience_is_for_the_server_itself(api: RawApi) -> None:
    path = await make_account(api, "trainer")
    token = (await api.call("POST", path, {"spec": {}})).body["status"]["token"]

    assert (await review(api, token))["authenticated"] is True
    assert not (await review(api, token, "berth.dev")).get("authenticated")


async def test_a_token_for_another_audience_is_not_accepted(api: RawApi) -> None:
    path = await make_account(api, "trainer")
    token = (await api.call("POST", path, request())).body["status"]["token"]

    found = await review(api, token)

    assert not found.get("authenticated")
    assert found["error"]


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "eyJhbGciOiJIUzI1NiJ9.e30."])
async def test_what_is_no_token_is_not_accepted(api: RawApi, token: str) -> None:
    assert not (await review(api, token)).get("authenticated")


async def test_a_token_ends_with_its_pod_also_where_another_takes_the_name(api: RawApi) -> None:
    path = await make_account(api, "trainer")
    uid = await make_pod(api, "p", "trainer")
    token = (await api.call("POST", path, request(pod="p", uid=uid))).body["status"]["token"]
    await api.call("DELETE", api.path("pods", "p"), {"gracePeriodSeconds": 0})
    await make_pod(api, "p", "trainer")

    assert not (await review(api, token, "berth.dev")).get("authenticated")


async def ask(api: RawApi, kind: str) -> Answer:
    """Request a token in a way that is rejected."""
    path = await make_account(api, "trainer")
    await make_account(api, "other")
    uid = await make_pod(api, "p", "trainer")
    match kind:
        case "no such account":
            return await api.call("POST", path.replace("trainer", "missing"), request())
        case "no such pod":
            return await api.call("POST", path, request(pod="q", uid=uid))
        case "another pod of that name":
            return await api.call("POST", path, request(pod="p", uid="0000"))
        case "a pod of another account":
            return await api.call("POST", path.replace("trainer", "other"), request(pod="p", uid=uid))
        case "too short a time":
            return await api.call("POST", path, request(expirationSeconds=60))
    raise AssertionError(kind)


@pytest.mark.parametrize(
    ("kind", "want_status", "want_message"),
    [
        ("no such account", 404, 'serviceaccounts "missing" not found'),
        ("no such pod", 404, 'pods "q" not found'),
        ("another pod of that name", 409, "does not match the UID in record"),
        ("a pod of another account", 400, "pod running with different serviceaccount name."),
        ("too short a time", 422, "may not specify a duration less than 10 minutes"),
    ],
)
async def test_a_token_is_refused(api: RawApi, kind: str, want_status: int, want_message: str) -> None:
    answer = await ask(api, kind)

    assert answer.status == want_status, answer.body
    assert want_message in answer.message
