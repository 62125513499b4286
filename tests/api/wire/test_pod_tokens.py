"""Tokens of pods: rejection without a review, the audience of a review, and its result."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from api.wire.pod_tokens import PodIdentity, TokenError, bearer_token, expires_at, read_review, review_body

NOW = 1_769_860_800.0
ACCOUNT = "system:serviceaccount:team:trainer"


def make_token(**claims: Any) -> str:
    """Return a token of ServiceAccount trainer that holds for an hour; `claims` replace its own."""
    body = {"sub": ACCOUNT, "exp": NOW + 3600, "aud": ["berth.dev"], **claims}
    payload = base64.urlsafe_b64encode(msgspec.json.encode(body)).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


@pytest.mark.parametrize(
    ("header", "want"),
    [
        pytest.param("Bearer abc", "abc", id="as written"),
        pytest.param("bearer  abc ", "abc", id="with another case and more space"),
    ],
)
def test_the_token_of_a_header(header: str, want: str) -> None:
    assert bearer_token(header) == want


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "abc"])
def test_a_header_without_a_token(header: str) -> None:
    with pytest.raises(TokenError, match="the pod's own token") as refused:
        bearer_token(header)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("token", "want"),
    [
        pytest.param("not-a-token", "no token of a ServiceAccount", id="no JWT"),
        pytest.param("a.b.c.d.e", "no token of a ServiceAccount", id="an encrypted one"),
        pytest.param("e30.!!!.c2ln", "no token of a ServiceAccount", id="one that is no base64"),
        pytest.param(make_token(sub="alice"), "no token of a ServiceAccount", id="a user's"),
        pytest.param(make_token(pad="x" * 9000), "no token of a ServiceAccount", id="an endless one"),
        pytest.param(make_token(exp=NOW), "has expired", id="one that has run out"),
        pytest.param(make_token(exp=None), "no token of a ServiceAccount", id="one without an end"),
    ],
)
def test_a_token_that_costs_no_review(token: str, want: str) -> None:
    with pytest.raises(TokenError, match=want) as refused:
        review_body(token, now=NOW)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("audience", "want"),
    [
        pytest.param(["berth.dev"], ["berth.dev"], id="a token for Berth"),
        pytest.param("berth.dev", ["berth.dev"], id="with its audience as a text"),
        pytest.param(["https://kubernetes.default.svc"], None, id="the pod's ordinary token"),
    ],
)
def test_audiences_that_a_token_is_reviewed_for(audience: object, want: list[str] | None) -> None:
    spec = msgspec.json.decode(review_body(make_token(aud=audience), now=NOW))["spec"]

    assert spec.get("audiences") == want


def test_until_when_a_token_holds() -> None:
    assert expires_at(make_token()) == NOW + 3600
    assert expires_at("not-a-token") == 0


def review(*, user: str | None = ACCOUNT, **status: Any) -> bytes:
    extra = {f"authentication.kubernetes.io/pod-{one}": [f"the-{one}"] for one in ("name", "uid")}
    found = {"authenticated": True, "user": {"username": user, "extra": extra}, **status}
    return msgspec.json.encode({"status": found})


def test_the_pod_behind_a_token() -> None:
    assert read_review(review()) == PodIdentity(namespace="team", name="the-name", uid="the-uid")


@pytest.mark.parametrize(
    ("answer", "status", "want"),
    [
        pytest.param(review(authenticated=False), 401, "does not accept", id="not accepted"),
        pytest.param(review(user=None), 401, "cannot be read", id="without a name"),
        pytest.param(b'{"status": {"authenticated": true}}', 401, "does not accept", id="without a user"),
        pytest.param(b"[]", 401, "cannot be read", id="no review"),
        pytest.param(
            msgspec.json.encode({"status": {"authenticated": True, "user": {"username": ACCOUNT}}}),
            403,
            "not bound to a pod",
            id="bound to no pod",
        ),
        pytest.param(review(user="alice"), 403, "not bound to a pod", id="no ServiceAccount's"),
    ],
)
def test_a_token_that_a_review_refuses(answer: bytes, status: int, want: str) -> None:
    with pytest.raises(TokenError, match=want) as refused:
        read_review(answer)
    assert refused.value.status == status
