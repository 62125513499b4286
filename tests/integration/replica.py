"""One controller as a child process: `berth controller`, and what it says of itself."""

from __future__ import annotations

import http.client
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.children import Child
from tests.forks import ForkedChild
from tests.integration.waiting import PATIENCE_SECONDS, wait_for

# What is open: each on any free port, so that controllers of parallel runs do not meet.
_DOORS = ("http", "metrics")
BERTH = str(Path(sys.executable).with_name("berth"))

# For tests that wait for a dead leader's lease to end, or for a leader to lose it.
SHORT_LEASE = """
apiVersion: berth.dev/v1alpha1
kind: ControllerConfig
lease: {durationSeconds: 4, renewSeconds: 1, deadlineSeconds: 2.5}
"""


class Replica:
    """A `berth controller` on ports of its own. Its log holds stdout and stderr of all its lives."""

    def __init__(
        self,
        kubeconfig: str,
        folder: Path,
        *flags: str,
        name: str = "controller",
        failpoint: str | None = None,
        config: str | None = None,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (BERTH,),
    ) -> None:
        arguments = [*program, "controller", "--kubeconfig", kubeconfig]
        for door in ("http", "metrics", "extender", "visibility", "webhook"):
            arguments += [f"--{door}-port", "0" if door in _DOORS else "-1"]
        arguments += ["--log-level", "debug", *flags]
        self.config_file = folder / f"{name}.yaml"
        if config is not None:
            self.config_file.write_text(config)
            arguments += ["--config", str(self.config_file)]
        environment = dict(environment or {})
        if failpoint is not None:
            arguments.append("--enable-failpoints")
            environment["BERTH_FAILPOINT"] = failpoint
        # A program of the test's own is started as it is.
        kind = ForkedChild if program == (BERTH,) else Child
        self.child = kind(name=name, arguments=arguments, log=folder / f"{name}.log", environment=environment)

    @property
    def children(self) -> tuple[Child, ...]:
        """The process, whose log is shown with a failure."""
        return (self.child,)

    def start(self) -> None:
        """Start the process and return at once."""
        self.child.start()

    def wait_ready(self) -> None:
        """Return when every cache has synced: it leads, or follows."""
        self.child.wait_ready(self.is_ready, timeout_seconds=180.0)

    def is_ready(self) -> bool:
        """Return whether /readyz says so."""
        return "metrics" in self.urls() and self.get("metrics", "/readyz")[0] == 200

    def wait_leading(self) -> None:
        """Return when it leads and decides."""
        self.child.wait_ready(lambda: self.has_logged("deciding"), timeout_seconds=180.0)

    def wait_exit(self, timeout_seconds: float = PATIENCE_SECONDS) -> int:
        """Return the exit code once the process has ended."""
        return self.child.wait(timeout_seconds)

    def wait_frozen(self) -> None:
        """Return when the process has been stopped (SIGSTOP) or has stopped itself."""
        stat = Path(f"/proc/{self.child.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{self.child.name} frozen")

    def said(self) -> str:
        """Return the sentence with which it ended."""
        said = [line for line in self.log().splitlines() if line.startswith("berth controller: ")]
        assert len(said) == 1, self.log()
        return said[0].removeprefix("berth controller: ")

    def log(self) -> str:
        """Return everything it has printed."""
        return self.child.log.read_text(errors="replace") if self.child.log.exists() else ""

    def has_logged(self, event: str, *fields: str) -> bool:
        """Return whether there is a log line of this event with these `key=value` fields."""
        lines = (line.split(" ", 3) for line in self.log().splitlines())
        found = (line for line in lines if len(line) > 2 and line[2] == event)
        return any(all(each in " ".join(line) for each in fields) for line in found)

    def wait_logged(self, event: str, *fields: str) -> None:
        """Return when there is such a log line."""
        wait_for(
            lambda: self.has_logged(event, *fields), f"{event} {' '.join(fields)} in {self.child.name}'s log"
        )

    def urls(self) -> Mapping[str, str]:
        """Return where it listens, {} while it does not."""
        lines = [line for line in self.log().splitlines() if line.startswith('{"event": "listening"')]
        return json.loads(lines[-1]) if lines else {}

    def get(self, door: str, path: str) -> tuple[int, str]:
        """Return status and text of one of its pages; status 0 where nothing answers."""
        address = urlsplit(self.urls()[door])
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20.0)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """Return what /v1 answers."""
        status, text = self.get("http", path)
        assert status == 200, text
        return json.loads(text)

    def view_of(self, cluster_queue: str) -> Any | None:
        """Return what /v1 says of a ClusterQueue, None while it does not know it."""
        status, text = self.get("http", f"/v1/clusterqueues/{cluster_queue}")
        assert status in (200, 404), text
        return json.loads(text) if status == 200 else None

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels; 0 where there is none."""
        _, text = self.get("metrics", "/metrics")
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        samples = re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for found, value in samples if wanted <= set(found.split(",")))
