"""What KubeRay asks of the Ray processes in a cluster's pods, which simulated nodes do not run.

KubeRay reaches them by the names of Services and the addresses of pods, which this machine cannot resolve.
Go's client sends such requests to the proxy of its environment, which this is: it answers for every cluster.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_JOBS = "/api/jobs/"
_APPLICATIONS = "/api/serve/applications/"
# What a RayService serves, as its author writes it.
SERVE_CONFIG = """
applications:
  - {name: app, import_path: app.graph, route_prefix: /app}
"""
_END_SECONDS = 10.0


def job_id(seconds: float) -> str:
    """Return the id of a Ray job that runs for so long from the first question about it."""
    return f"runs-{seconds:g}"


class RayNetwork:
    """Answers as Ray's dashboard, from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="ray-network")

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables by which a Go program sends its requests here."""
        return {"HTTP_PROXY": f"http://127.0.0.1:{self._server.server_address[1]}"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_END_SECONDS)

    def answer(self, url: str) -> Mapping[str, Any]:
        """Return what Ray answers: of a job how it fares, and that what a service asks for is served."""
        path = urlsplit(url).path
        if path.startswith(_JOBS):
            return self._job(url, path.removeprefix(_JOBS))
        if path == _APPLICATIONS:
            return {"applications": {"app": {"name": "app", "status": "RUNNING", "deployments": {}}}}
        return {}

    def _job(self, url: str, name: str) -> Mapping[str, Any]:
        """Return how a job fares, or that it is stopped, which the pods of a suspended RayJob are."""
        if name.endswith("/stop"):
            return {"stopped": True}
        began = self._began.setdefault(url, time.monotonic())
        has_ended = time.monotonic() - began >= float(name.rpartition("-")[2])
        milliseconds = round(1000 * time.time())
        return {
            "submission_id": name,
            "status": "SUCCEEDED" if has_ended else "RUNNING",
            "start_time": milliseconds,
            **({"end_time": milliseconds} if has_ended else {}),
        }


def _handler(network: RayNetwork) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps(network.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _answer  # noqa: N815  the library finds them by these names

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output to what they say."""

    return Handler
