"""Report the checkpoints of a training job to Berth, and find out when Berth requests one.

A single file that needs only the standard library: the distribution `berth-checkpoint` installs it as
`berth_checkpoint`, and it also works if it is copied into an image. Without a cluster, nothing is
reported and no checkpoint is ever requested.

    import berth_checkpoint

    step = resume()
    berth_checkpoint.resumed()
    while step < LAST and not berth_checkpoint.stopping():
        step = train(step)
        if step % 500 == 0 or berth_checkpoint.requested():
            with berth_checkpoint.saving(step):
                save(step)

Communication with Berth (docs/checkpoints.md has the manifests):

    report      POST $BERTH_URL/v1/checkpoints with the pod's own token, which identifies the pod and so the
                job
    request     the pod's annotation berth.dev/checkpoint-requested-at in a downward-API file, and SIGTERM.
                The kubelet updates the file up to 90 seconds late; SIGTERM arrives immediately.
                With berth.dev/checkpoint-on-sigterm: "true" on the Job only SIGTERM is sent, if a save
                fits the grace period of its pods

A report that fails does not affect the training: the failure is printed once to stderr, and the job
continues. The server proves its name by TLS (`BERTH_CA_FILE`). Reports bypass the proxies in the
environment: proxies cannot resolve the names of a cluster, and must not see the token. Python 3.8 and later.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from types import FrameType

__all__ = ["deadline", "progress", "requested", "resumed", "saved", "saving", "stopping"]

_DEFAULT_URL = "https://berth-controller.berth-system:8090"
# The authority of that server's certificate, beside the token; without the file the system's authorities.
_CA_FILE = "/var/run/secrets/berth.dev/ca.crt"
# Berth's own token first: it has a single audience, so it is useless anywhere else if it leaks.
_TOKEN_FILES = (
    "/var/run/secrets/berth.dev/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
)
_ANNOTATIONS_FILE = "/etc/podinfo/annotations"
_REQUESTED_AT = "berth.dev/checkpoint-requested-at"
_DEADLINE = "berth.dev/checkpoint-deadline"
# A line of a downward-API file: a key, and its value with Go's quoting.
_LINE = re.compile(r'^([^=]+)=("(?:[^"\\]|\\.)*")$')
# A training step may take milliseconds; the file is read at most once in this time.
_LOOK_SECONDS = 1.0
# The expected end is reported at most once in this time.
_PROGRESS_SECONDS = 60.0
# Roughly how long training is blocked if Berth hangs; losing a report costs less.
_REPORT_SECONDS = 2.0


class _State:
    """The state of this process. Times are in Unix seconds; 0 means never.

    A request is identified by two times, that of the annotation and that of SIGTERM. They are never compared
    with this machine's clock: the annotation is in whole seconds and was written on another machine.
    """

    def __init__(self) -> None:
        self.asked = (0.0, 0.0)
        self.answered = (0.0, 0.0)
        self.sigterm_at = 0.0
        self.looked_at = 0.0
        self.annotations: dict[str, float] = {}
        self.complaints: set[str] = set()
        # The first call of `progress`, as (monotonic time, done), and the time of its last report.
        self.began: tuple[float, float] | None = None
        self.told_at = 0.0
        # The SIGTERM handlers that this module has installed, and the process that installed them.
        self.handlers: list[object] = []
        self.process = 0


_state = _State()


def requested() -> bool:
    """Return whether Berth requests a checkpoint that has not been saved yet: save now, then continue.

    From the first call on, SIGTERM also counts as a request, and no longer ends the process (see `stopping`).
    If a job has several ranks, each must call this function, but all must act on the result of rank 0,
    because requests do not reach the ranks at the same time. Call it from the main thread at least once,
    otherwise SIGTERM ends the process as usual. A handler that the program installs, before or later, is
    called too. A call costs next to nothing.
    """
    _catch_sigterm()
    _state.asked = (_annotations().get(_REQUESTED_AT, 0.0), _state.sigterm_at)
    # An annotation that was removed requests nothing.
    return any(asked not in (0.0, answered) for asked, answered in zip(_state.asked, _state.answered))


def stopping() -> bool:
    """Return whether the process is being stopped: SIGTERM has arrived, and the grace period is running."""
    _catch_sigterm()
    return _state.sigterm_at > 0


def deadline() -> float | None:
    """Return the time (Unix seconds) until which Berth waits for the requested checkpoint.

    None if unknown.
    """
    return _annotations().get(_DEADLINE)


def saved(step: int, *, save_seconds: float | None = None) -> bool:
    """Report that a checkpoint of `step` is complete and can be resumed from.

    Return whether Berth accepted it.

    Call it once the checkpoint is durable, from one process of the job (rank 0). `save_seconds` is the
    duration of the save, from which Berth learns the cost of a request. Raises no exception.
    """
    # A request that arrived while the checkpoint was being written may not be covered by it,
    # so it stays open.
    _state.answered = _state.asked
    number = _number("step", step)
    if number is None:
        return False
    # The checkpoint was completed after the request, whatever this machine's clock says. With a slow clock,
    # it would otherwise not count as an answer, and Berth would keep waiting.
    at = max(time.time(), _state.asked[0])
    report: dict[str, object] = {"step": int(number), "time": _to_text(at)}
    seconds = None if save_seconds is None else _number("save_seconds", save_seconds)
    if seconds is not None:
        report["saveSeconds"] = round(seconds, 3)
    return _send(report)


def resumed() -> bool:
    """Report that useful work starts here; return whether Berth accepted the report.

    Call it once, from one process of the job (rank 0), when all initialization before the first step is done.
    Berth learns from it how long a start takes, counted from admission. Raises no exception.
    """
    return _send({"resumedAt": _to_text(time.time())})


def progress(done: float, total: float) -> bool:
    """Report how much of the work is done, such as steps; return whether Berth accepted a report now.

    From the speed since the first call, Berth learns when the job is expected to end, and promises other jobs
    a start by it. Call it as often as you like, from one process of the job (rank 0): it reports at most once
    a minute, and only from the second call on. Without a positive total nothing is reported. Raises no
    exception.
    """
    so_far, whole, now = _number("done", done), _number("total", total), time.monotonic()
    if so_far is None or whole is None:
        return False
    if _state.began is None:
        _state.began = (now, so_far)
        return False
    since, first = _state.began
    # Right after the start, speed says little; and work that goes back has no speed.
    if now - max(since, _state.told_at) < _PROGRESS_SECONDS or so_far <= first or whole <= 0:
        return False
    remaining = (whole - so_far) * (now - since) / (so_far - first)
    # Huge numbers overflow.
    if not math.isfinite(remaining):
        return False
    _state.told_at = now
    return _send({"remainingSeconds": max(0, round(remaining))})


@contextmanager
def saving(step: int) -> Iterator[None]:
    """Measure the save in the body and report the checkpoint afterwards.

    A save that raises is not reported.
    """
    began = time.monotonic()
    yield
    saved(step, save_seconds=time.monotonic() - began)


# --- requests from Berth ---------------------------------------------------------------------------------


def _catch_sigterm() -> None:
    # Only the main thread may install a handler (`signal.signal` raises elsewhere); requests by annotation
    # are noticed in any thread.
    if threading.current_thread() is not threading.main_thread():
        return
    # Also set in a forked child that trains: otherwise it would ignore the inherited handler.
    _state.process = os.getpid()
    earlier = signal.getsignal(signal.SIGTERM)
    # Checked at each call: a framework that installs a handler when training starts would hide the signal.
    if any(earlier is ours for ours in _state.handlers):
        return

    def note(number: int, frame: FrameType | None) -> None:
        # A child that was forked later inherits this handler, but does not call `stopping`. Without
        # this branch, a parent that ends its workers by SIGTERM (multiprocessing, data loaders) would
        # wait for them forever.
        if os.getpid() != _state.process and not callable(earlier):
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
            os.kill(os.getpid(), number)
            return
        _state.sigterm_at = time.time()
        # The program may have its own handler, for example a framework that saves by itself.
        if callable(earlier):
            earlier(number, frame)

    signal.signal(signal.SIGTERM, note)
    _state.handlers.append(note)


def _annotations() -> dict[str, float]:
    now = time.monotonic()
    # The second condition covers the first call: in a fresh container, a monotonic clock may start near zero.
    if now - _state.looked_at >= _LOOK_SECONDS or not _state.looked_at:
        _state.looked_at = now
        _state.annotations = _read_annotations(os.environ.get("BERTH_PODINFO", _ANNOTATIONS_FILE))
    return _state.annotations


def _read_annotations(path: str) -> dict[str, float]:
    try:
        # The file may be read while it is written, and other annotations may have any encoding.
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    # The file contains every annotation of the pod; only two are Berth's, and all others may have any form.
    found = (match for match in map(_LINE.match, lines) if match and match[1] in (_REQUESTED_AT, _DEADLINE))
    instants = {match[1]: _to_instant(match[1], match[2]) for match in found}
    return {key: at for key, at in instants.items() if at is not None}


def _to_instant(key: str, quoted: str) -> float | None:
    try:
        # Go quotes plain text in the same way as JSON.
        return datetime.fromisoformat(json.loads(quoted).replace("Z", "+00:00")).timestamp()
    except ValueError:
        _complain(f"the annotation {key} is {quoted}, not a time such as 2026-01-15T12:00:00Z")
        return None


# --- reports to Berth ------------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects: Berth sends none, and the token must not be sent to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    """Return what sends a report. The authority is read again each time, because Berth renews it."""
    given = os.environ.get("BERTH_CA_FILE")
    path = given or (_CA_FILE if os.path.exists(_CA_FILE) else None)
    try:
        context = ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError(f"the authority in {path} cannot be read: {error}") from error
    https = urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https, _NoRedirect)


def _send(report: dict[str, object]) -> bool:
    token = _read_token()
    if token is None:
        return False
    url = os.environ.get("BERTH_URL", _DEFAULT_URL).rstrip("/") + "/v1/checkpoints"
    heard: list[bool] = []
    # In a thread, because no timeout covers a slow name resolution or a response that arrives byte by byte.
    thread = threading.Thread(target=lambda: heard.append(_post(url, token, report)), daemon=True)
    try:
        thread.start()
    # No thread can be started while the interpreter shuts down.
    except RuntimeError:
        return _post(url, token, report)
    # Slightly longer than the timeout of the request, whose error is more specific.
    thread.join(_REPORT_SECONDS + 0.5)
    if thread.is_alive():
        _complain(f"{url} does not answer within {_REPORT_SECONDS:g} s")
    return heard == [True]


def _post(url: str, token: str, report: dict[str, object]) -> bool:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, json.dumps(report).encode(), headers)
        with _opener().open(request, timeout=_REPORT_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        _complain(f"{url} answers {error.code}: {_beginning(error)}")
    # A server that does not speak HTTP (TLS, for example), or an invalid URL, raises errors of http.client
    # that are not OSErrors.
    except (OSError, ValueError, http.client.HTTPException) as error:
        _complain(f"{url} cannot be reached: {error}")
    return False


def _beginning(answer: urllib.error.HTTPError) -> str:
    """Return the beginning of the body of an error response; "" if the connection breaks before."""
    try:
        return answer.read(500).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""


def _read_token() -> str | None:
    """Return the pod's token, read again each time because the kubelet renews it; None outside a cluster."""
    given = os.environ.get("BERTH_TOKEN_FILE")
    for path in (given,) if given else _TOKEN_FILES:
        try:
            with open(path, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _number(name: str, value: object) -> float | None:
    """Return an argument as a number. None if it is none, which is printed once."""
    try:
        number = float(value)  # type: ignore[arg-type]
    # A tensor of several elements raises a RuntimeError in PyTorch.
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        number = math.nan
    if math.isfinite(number):
        return number
    # Not its value: each new one would be a new sentence.
    _complain(f"{name} must be a finite number; this one, a {type(value).__name__}, is not reported")
    return None


def _to_text(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _complain(sentence: str) -> None:
    """Print a sentence once: a training loop would repeat it a thousand times."""
    if sentence not in _state.complaints:
        _state.complaints.add(sentence)
        print(f"berth_checkpoint: {sentence}; training goes on", file=sys.stderr, flush=True)
