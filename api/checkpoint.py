"""Tell Berth of a training job's checkpoints, and learn when it asks for one.

One file, standard library only: installed with Berth it is `berth_checkpoint`, and copied into an image it
works alone. It needs no cluster either; where there is none, nothing is reported and nothing is ever asked.

    import berth_checkpoint

    step = resume()
    berth_checkpoint.resumed()
    while step < LAST and not berth_checkpoint.stopping():
        step = train(step)
        if step % 500 == 0 or berth_checkpoint.requested():
            with berth_checkpoint.saving(step):
                save(step)

How it talks to Berth (docs/checkpoints.md has the manifests):

    report      POST $BERTH_URL/v1/checkpoints with the pod's own token; the pod says which job it is
    request     the pod's annotation berth.dev/checkpoint-requested-at in a downward-API file, and SIGTERM.
                The kubelet brings the annotation up to a minute and a half late; SIGTERM comes at once.
                With berth.dev/checkpoint-on-sigterm: "true" on the Job SIGTERM alone is sent, where a save
                fits the grace of its pods

A report that does not arrive costs no training: it is said once on stderr, and the job goes on. It goes
straight to Berth, past the proxies that the environment names: they do not know a cluster's own names, and
the token is nobody else's business. Python 3.8 and later.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from types import FrameType

__all__ = ["deadline", "requested", "resumed", "saved", "saving", "stopping"]

_DEFAULT_URL = "http://berth-controller.berth-system:8090"
# Berth's own token first: made for one audience, it is of no use to whoever else gets hold of it.
_TOKEN_FILES = (
    "/var/run/secrets/berth.dev/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
)
_ANNOTATIONS_FILE = "/etc/podinfo/annotations"
_REQUESTED_AT = "berth.dev/checkpoint-requested-at"
_DEADLINE = "berth.dev/checkpoint-deadline"
# A line of a downward-API file: a key, and its value as Go quotes it.
_LINE = re.compile(r'^([^=]+)=("(?:[^"\\]|\\.)*")$')
# A training step may take milliseconds; the file is looked at so often and no oftener.
_LOOK_SECONDS = 1.0
# For about as long training stands still where Berth hangs; a report that is lost costs less than that.
_REPORT_SECONDS = 2.0


class _State:
    """What this process knows. Instants in Unix seconds; 0 is never.

    A request is known by its own two instants, the annotation's and SIGTERM's, and never compared with this
    machine's clock: the annotation is in whole seconds and of another machine.
    """

    def __init__(self) -> None:
        self.asked = (0.0, 0.0)
        self.answered = (0.0, 0.0)
        self.sigterm_at = 0.0
        self.looked_at = 0.0
        self.annotations: dict[str, float] = {}
        self.complaints: set[str] = set()
        # Those for SIGTERM that were set here, and by which process.
        self.handlers: list[object] = []
        self.process = 0


_state = _State()


def requested() -> bool:
    """Return whether Berth asks for a checkpoint that has not been saved yet: save now, then go on.

    From the first call on SIGTERM is such a request too, and no longer ends the process (see `stopping`).
    Of several ranks each calls it, and all do what rank 0 is told: they hear of a request one by one.
    Call it from the main thread at least once, else SIGTERM ends the process as ever. A handler that the
    program has set, before or since, is called as well. Costs next to nothing.
    """
    _catch_sigterm()
    _state.asked = (_annotations().get(_REQUESTED_AT, 0.0), _state.sigterm_at)
    # An annotation that is taken back asks for nothing.
    return any(asked not in (0.0, answered) for asked, answered in zip(_state.asked, _state.answered))


def stopping() -> bool:
    """Return whether the process is being stopped: SIGTERM has come, and its grace runs out."""
    _catch_sigterm()
    return _state.sigterm_at > 0


def deadline() -> float | None:
    """Return until when Berth waits for the checkpoint that it asks for, in Unix seconds; None: not known."""
    return _annotations().get(_DEADLINE)


def saved(step: int, *, save_seconds: float | None = None) -> bool:
    """Tell that a checkpoint of `step` is complete and can be resumed from; returns whether Berth has heard.

    Call it once the checkpoint is durable, from one process of the job (rank 0). `save_seconds` is how long
    the saving took, from which Berth learns what a request costs. Raises nothing.
    """
    # What came while the checkpoint was being written may not be in it, and is asked for again.
    _state.answered = _state.asked
    # It was complete after it had been asked for, whatever this machine's clock says: by a clock that is slow
    # it would be no answer, and be waited for in vain.
    at = max(time.time(), _state.asked[0])
    report: dict[str, object] = {"step": int(step), "time": _to_text(at)}
    if save_seconds is not None:
        report["saveSeconds"] = round(float(save_seconds), 3)
    return _send(report)


def resumed() -> bool:
    """Tell that useful work goes on from here; returns whether Berth has heard.

    Call it once, from one process of the job (rank 0), when all that comes before the first step is done:
    Berth learns from it how long a start takes, from admission on. Raises nothing.
    """
    return _send({"resumedAt": _to_text(time.time())})


@contextmanager
def saving(step: int) -> Iterator[None]:
    """Measure the saving in the body and report it when it is done. One that raises is not reported."""
    began = time.monotonic()
    yield
    saved(step, save_seconds=time.monotonic() - began)


# --- what Berth asks -------------------------------------------------------------------------------------


def _catch_sigterm() -> None:
    # Only the main thread may set a handler (`signal.signal` raises elsewhere); requests by
    # annotation are heard from any thread.
    if threading.current_thread() is not threading.main_thread():
        return
    # Also in a child that trains: what it has inherited would not count for it.
    _state.process = os.getpid()
    earlier = signal.getsignal(signal.SIGTERM)
    # Asked each time: a framework that sets its own when its training begins would hide the signal from us.
    if any(earlier is ours for ours in _state.handlers):
        return

    def note(number: int, frame: FrameType | None) -> None:
        # A child that was forked since has this handler too, and nobody there asks `stopping`: without this,
        # whoever ends workers by SIGTERM (multiprocessing, data loaders) would wait for them for ever.
        if os.getpid() != _state.process and not callable(earlier):
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
            os.kill(os.getpid(), number)
            return
        _state.sigterm_at = time.time()
        # A framework that saves by itself, say, has set a handler of its own.
        if callable(earlier):
            earlier(number, frame)

    signal.signal(signal.SIGTERM, note)
    _state.handlers.append(note)


def _annotations() -> dict[str, float]:
    now = time.monotonic()
    # The second condition is the first look: a monotonic clock may begin near zero, as in a fresh container.
    if now - _state.looked_at >= _LOOK_SECONDS or not _state.looked_at:
        _state.looked_at = now
        _state.annotations = _read_annotations(os.environ.get("BERTH_PODINFO", _ANNOTATIONS_FILE))
    return _state.annotations


def _read_annotations(path: str) -> dict[str, float]:
    try:
        # Read while it is written, or with another's annotation in whatever encoding: no reason to end.
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    # The file holds every annotation of the pod; all but two are somebody else's and may look as they like.
    found = (match for match in map(_LINE.match, lines) if match and match[1] in (_REQUESTED_AT, _DEADLINE))
    instants = {match[1]: _to_instant(match[1], match[2]) for match in found}
    return {key: at for key, at in instants.items() if at is not None}


def _to_instant(key: str, quoted: str) -> float | None:
    try:
        # Go's quoting of plain text is JSON's.
        return datetime.fromisoformat(json.loads(quoted).replace("Z", "+00:00")).timestamp()
    except ValueError:
        _complain(f"the annotation {key} is {quoted}, not a time such as 2026-01-15T12:00:00Z")
        return None


# --- what Berth is told ----------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Berth sends nobody elsewhere: whoever does is not Berth, and the token is not for where it points."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def _send(report: dict[str, object]) -> bool:
    token = _read_token()
    if token is None:
        return False
    url = os.environ.get("BERTH_URL", _DEFAULT_URL).rstrip("/") + "/v1/checkpoints"
    heard: list[bool] = []
    # In a thread, for nothing else ends a look-up of the name, or an answer that comes drop by drop, in time.
    thread = threading.Thread(target=lambda: heard.append(_post(url, token, report)), daemon=True)
    try:
        thread.start()
    # While the interpreter ends no thread begins any more.
    except RuntimeError:
        return _post(url, token, report)
    # A little longer than the request's own limit, which says more.
    thread.join(_REPORT_SECONDS + 0.5)
    if thread.is_alive():
        _complain(f"{url} does not answer within {_REPORT_SECONDS:g} s")
    return heard == [True]


def _post(url: str, token: str, report: dict[str, object]) -> bool:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, json.dumps(report).encode(), headers)
        with _opener.open(request, timeout=_REPORT_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        _complain(f"{url} answers {error.code}: {_beginning(error)}")
    # Something that speaks another language than HTTP (TLS, say), and a URL that nothing can be sent to,
    # raise errors of http.client that are no OSError.
    except (OSError, ValueError, http.client.HTTPException) as error:
        _complain(f"{url} cannot be reached: {error}")
    return False


def _beginning(answer: urllib.error.HTTPError) -> str:
    """Return how the body of a refusal begins; "" where the connection breaks before."""
    try:
        return answer.read(500).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""


def _read_token() -> str | None:
    """Return the pod's token, read anew each time as the kubelet renews it; None outside a cluster."""
    given = os.environ.get("BERTH_TOKEN_FILE")
    for path in (given,) if given else _TOKEN_FILES:
        try:
            with open(path, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _to_text(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _complain(sentence: str) -> None:
    """Say it once: a training loop would say it a thousand times."""
    if sentence not in _state.complaints:
        _state.complaints.add(sentence)
        print(f"berth_checkpoint: {sentence}; training goes on", file=sys.stderr, flush=True)
