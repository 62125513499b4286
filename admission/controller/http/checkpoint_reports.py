"""POST /v1/checkpoints: a running pod reports its work's checkpoints, authenticated by its own token.

    who?       the token, reviewed by the API server, is a pod's                       401, 403, 429
    whose?     the pod runs for a Workload here: its Job's, its group's or its own     403
    how often? the limits for each pod and for all pods together are kept              429
    what?      the body is read field by field                                         400, 413, 422
    stored     the subject's annotations show this checkpoint, or a newer one          200, 404, 409, 503

Every replica answers, not only the leader. A refused report is counted by its cause and, once its subject is
known, reported by an Event on it. It does not affect other reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http.checkpoint_subjects import Subject, Subjects
from admission.controller.http.checkpoint_writer import BusyError, CheckpointWriter, OutdatedError
from admission.controller.http.pod_identity import PodIdentities, Reporter
from admission.controller.queries.review_budget import TooManyReviewsError
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.token_bucket import TokenBuckets
from admission.decisions.api_writes import Event
from api import keys
from api.http.server import HttpError, Request, Response, Route, json_response
from api.jobs.checkpoint_annotations import parse_step
from api.kube.client import KubeClient
from api.kube.errors import KubeError, NotFound
from api.object_events import EventType
from api.wire.checkpoint_report import (
    MAX_REPORT_BYTES,
    MOST_REMAINING_SECONDS,
    BadReportError,
    Report,
    read_report,
)
from api.wire.pod_tokens import TokenError, bearer_token

PATH = "/v1/checkpoints"
# A checkpoint takes seconds at least. A pod that reports faster than this for long has a bug.
POD_REPORTS_PER_SECOND = 0.5
POD_BURST = 20.0
ALL_REPORTS_PER_SECOND = 100.0
ALL_BURST = 1000.0
# A report that is too large is read and counted up to this size, and refused unread beyond it.
_MOST_READ_BYTES = 65_536
_WORDS = {
    200: "stored",
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    404: "gone",
    409: "outdated",
    413: "too-large",
    422: "invalid",
    429: "too-many",
    503: "unavailable",
}


class CheckpointReports:
    """The route, and the task that stores reports.

    `is_ready`: whether all Jobs and pods are known. `observe` is called with the result of each report.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        cluster_state: ClusterState,
        events: EventReporter,
        *,
        is_ready: Callable[[], bool],
        observe: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._subjects = Subjects(cluster_state)
        self._events = events
        self._observe = observe
        self._is_ready = is_ready
        self._identities = PodIdentities(client, clock)
        self._writer = CheckpointWriter(client, clock, self._subjects)
        self._of_pod = TokenBuckets(per_second=POD_REPORTS_PER_SECOND, burst=POD_BURST)
        self._of_all = TokenBuckets(per_second=ALL_REPORTS_PER_SECOND, burst=ALL_BURST)

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("POST", PATH, self._take, max_body_bytes=_MOST_READ_BYTES)]

    async def run(self) -> None:
        """Store reports until cancelled."""
        await self._writer.run()

    async def _take(self, request: Request) -> Response:
        try:
            answer = await self._answer(request)
        except HttpError as error:
            # Counted by the status of the answer, so that the metric agrees with what the client got.
            self._observe(_WORDS[error.status])
            raise
        self._observe(_WORDS[answer.status])
        return answer

    async def _answer(self, request: Request) -> Response:
        if not self._is_ready():
            raise _later(503, "this replica does not know all Jobs yet", 1.0)
        # Before the body is read: a client that may not report learns nothing about its validity.
        reporter = await self._identify(request)
        subject = self._subject(reporter)
        now = self._clock.monotonic()
        # The pod's own limit first, so that a pod in a loop does not use up the shared limit.
        wait = self._of_pod.take(reporter.pod.uid, now=now) or self._of_all.take("", now=now)
        if wait:
            raise _later(429, "too many reports", wait)
        try:
            report = read_report(request.body, now=self._clock.now())
        except BadReportError as error:
            self._report(subject, str(error))
            raise HttpError(error.status, str(error)) from error
        return _stored(subject, await self._store(subject, report))

    async def _identify(self, request: Request) -> Reporter:
        try:
            token = bearer_token(request.headers.get("authorization", ""))
            return await self._identities.identify(token, address=request.client_address)
        except TokenError as error:
            # HTTP requires this header with a 401. It says which credentials to send.
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            raise HttpError(error.status, str(error), headers=headers) from error
        except TooManyReviewsError as error:
            raise _later(429, str(error), error.retry_after_seconds) from error
        except KubeError as error:
            raise _unavailable(error) from error

    def _subject(self, reporter: Reporter) -> Subject:
        subject, pod = self._subjects.of(reporter), reporter.pod
        if subject is None:
            message = (
                f"the pod {pod.namespace}/{pod.name} is not controlled by a Job that Berth manages,"
                " and not queued itself"
            )
            raise HttpError(403, message)
        return subject

    async def _store(self, subject: Subject, report: Report) -> Mapping[str, str]:
        try:
            return await self._writer.store(subject, report)
        except OutdatedError as error:
            self._report(subject, str(error))
            raise HttpError(409, str(error)) from error
        except BusyError as error:
            raise _later(503, str(error), 1.0) from error
        except NotFound as error:
            raise HttpError(404, f"{subject} is gone") from error
        except KubeError as error:
            raise _unavailable(error) from error

    def _report(self, subject: Subject, said: str) -> None:
        self._events.send(
            Event(
                regarding=subject.ref,
                type=EventType.WARNING,
                reason="CheckpointRefused",
                note=f"{subject}: a report to {PATH} is refused: {said}",
                action="Report",
            )
        )


def _stored(subject: Subject, annotations: Mapping[str, str]) -> Response:
    step = annotations.get(keys.CHECKPOINT_STEP, "")
    return json_response(
        {
            subject.resource.kind.lower(): subject.key,
            "time": annotations.get(keys.CHECKPOINT_TIME),
            "step": parse_step(step),
        }
    )


def _later(status: int, message: str, seconds: float) -> HttpError:
    return HttpError(status, message, headers={"Retry-After": str(max(1, ceil(seconds)))})


def _unavailable(error: KubeError) -> HttpError:
    return _later(503, f"the API server does not take it: {error}", error.retry_after_seconds or 1.0)


def _field(kind: str, text: str, **more: object) -> dict[str, object]:
    return {"type": kind, "description": text, **more}


REPORT_OPERATION: Mapping[str, object] = {
    "summary": "Report a checkpoint of the Job, group or pod that sends this, or that its work has resumed",
    "description": "Authenticated with the pod's own ServiceAccount token as bearer token.",
    "security": [{"podToken": []}],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "step": _field("integer", "the checkpoint's step; with time", minimum=0),
                        "time": _field("string", "when it was complete", format="date-time"),
                        "saveSeconds": _field("number", "how long saving it took", minimum=0, maximum=86400),
                        "resumedAt": _field("string", "since when work goes on", format="date-time"),
                        "remainingSeconds": _field(
                            "number",
                            "how long the work will still take",
                            minimum=0,
                            maximum=MOST_REMAINING_SECONDS,
                        ),
                    },
                }
            }
        },
    },
    "responses": {
        "200": {
            "description": "stored on the Job, the pod, or the Workload of its group: the answer names it,"
            " with its newest checkpoint"
        },
        "400": {"description": "no JSON"},
        "401": {"description": "no token, or one that the API server does not accept"},
        "403": {
            "description": "not the token of a pod that is queued, or controlled by a Job that Berth manages"
        },
        "404": {"description": "what it would be stored on is gone"},
        "409": {"description": "a newer checkpoint is known"},
        "413": {"description": f"more than {MAX_REPORT_BYTES} bytes"},
        "422": {"description": "a field that does not exist, has a wrong type, or lies in the future"},
        "429": {"description": "too many reports, or tokens to review; Retry-After says when to come again"},
        "503": {"description": "the API server or this replica cannot take it now; see Retry-After"},
    },
}
"""The description of the route in /v1/openapi.json."""
