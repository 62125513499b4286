"""The error for each response."""

from __future__ import annotations

import json

import pytest

from api.kube import errors
from api.kube.errors import MAX_RETRY_AFTER_SECONDS, KubeError, error_of_answer, error_of_event


def status_body(
    code: int, reason: str = "", message: str = "no", *, details: dict[str, int] | None = None
) -> bytes:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json.dumps({**body, "details": details} if details else body).encode()


@pytest.mark.parametrize(
    ("status", "reason", "want_class"),
    [
        pytest.param(400, "BadRequest", errors.Invalid, id="a bad request is invalid"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, id="unknown credentials"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="missing rights"),
        pytest.param(404, "NotFound", errors.NotFound, id="an absent object"),
        pytest.param(405, "MethodNotAllowed", errors.Invalid, id="a verb that the kind does not serve"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="a create of what exists"),
        pytest.param(409, "Conflict", errors.Conflict, id="an old resourceVersion"),
        pytest.param(410, "Expired", errors.Gone, id="a forgotten version"),
        pytest.param(413, "RequestEntityTooLarge", errors.Invalid, id="an object too large"),
        pytest.param(422, "Invalid", errors.Invalid, id="an object that validation refuses"),
        pytest.param(429, "TooManyRequests", errors.TooManyRequests, id="a server that asks to wait"),
        pytest.param(500, "InternalError", errors.ServerError, id="a server that failed"),
        pytest.param(504, "Timeout", errors.ServerError, id="a server that lost its store"),
        pytest.param(302, "", errors.ServerError, id="a redirect is no answer of an API server"),
    ],
)
def test_each_status_has_one_class(status: int, reason: str, want_class: type[KubeError]) -> None:
    error = error_of_answer(status, status_body(status, reason, "because"))

    assert type(error) is want_class
    assert (error.status, error.reason, error.message, str(error)) == (status, reason, "because", "because")


@pytest.mark.parametrize(
    ("header", "details", "want_seconds"),
    [
        pytest.param("3", {}, 3.0, id="the header counts"),
        pytest.param("3", {"retryAfterSeconds": 9}, 3.0, id="the header counts before the body"),
        pytest.param(None, {"retryAfterSeconds": 9}, 9.0, id="the body counts without a header"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", {}, None, id="a date is not read"),
        pytest.param("-3", {}, None, id="a negative wait is none"),
        pytest.param("nan", {}, None, id="no number is none"),
        pytest.param("-inf", {"retryAfterSeconds": 9}, 9.0, id="the body counts beside a negative header"),
        pytest.param(None, {"retryAfterSeconds": -9}, None, id="a negative wait in the body is none"),
        pytest.param("86400", {}, MAX_RETRY_AFTER_SECONDS, id="a day is too long"),
        pytest.param("inf", {}, MAX_RETRY_AFTER_SECONDS, id="for ever is too long"),
        pytest.param(None, {"retryAfterSeconds": 10**12}, MAX_RETRY_AFTER_SECONDS, id="too long in the body"),
        pytest.param(None, {}, None, id="nothing is asked"),
    ],
)
def test_the_wait_that_a_server_asks_for(
    header: str | None, details: dict[str, int], want_seconds: float | None
) -> None:
    error = error_of_answer(429, status_body(429, details=details), retry_after=header)

    assert error.retry_after_seconds == want_seconds


@pytest.mark.parametrize(
    ("body", "want_message"),
    [
        pytest.param(b"404 page not found\n", "HTTP 503: 404 page not found", id="plain text is quoted"),
        pytest.param(b"", "HTTP 503", id="an empty answer gives its status"),
        pytest.param(b"<html>\n <b>bad  gateway", "HTTP 503: <html> <b>bad gateway", id="on one line"),
        pytest.param(b"\xff\xfe", "HTTP 503: \ufffd\ufffd", id="bytes that are no text"),
        pytest.param(b'{"message": 7}', 'HTTP 503: {"message": 7}', id="a Status of wrong types"),
        pytest.param(b"x" * 10_000, "HTTP 503: " + "x" * 300, id="the beginning of much"),
    ],
)
def test_an_answer_that_is_no_status_is_quoted(body: bytes, want_message: str) -> None:
    assert error_of_answer(503, body).message == want_message


def test_the_error_event_of_a_watch_is_read_by_its_code() -> None:
    assert isinstance(error_of_event(status_body(410, "Expired")), errors.Gone)


def test_an_error_event_without_a_code_is_the_servers_fault() -> None:
    assert isinstance(error_of_event(b"{}"), errors.ServerError)
