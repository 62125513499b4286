"""Asks /v1 what its OpenAPI document allows, and more, by schemathesis: `python -m tests.openapi`.

    python -m tests.openapi [--seconds 25] [--seed N]

It serves a small cluster on a port of its own. What is wrong: a status of 500 or above that is not
documented, an answer that is not as the document says, or a status that it does not name. The exit code is
schemathesis'. Its own package is in requirements-openapi.lock, so `make openapi` installs it first.

Left out: reports of checkpoints, which need the identity of a pod, and the plan, which needs a leader.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from admission.controller.http.checkpoint_reports import PATH as REPORTS
from admission.controller.http.query_api import QueryApi
from admission.controller.http.state_api import StateApi
from admission.controller.queries.authorization import Authorization
from admission.controller.queries.callers import Callers, RateLimits, Rights
from admission.controller.queries.service import QueryService
from admission.controller.runtime.large_reads import LargeReads
from api.http.server import HttpServer
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.known import Known
from tests.admission.controller.queries.asking import Reviewer, running_workload, see_everything, two_teams

_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class HastyClock(FakeClock):
    """An hour passes between two looks, so that no limit of a caller is met and every watch ends at once."""

    def monotonic(self) -> float:
        """Return a time that is an hour later."""
        self.at += 3600.0
        return self.at


def make_server() -> HttpServer:
    """Return a server of /v1 for two teams, open to all of this machine."""
    known, clock = (
        Known(*two_teams(), running_workload("runs", "ada", "queue-a", at=0, says=60)),
        HastyClock(),
    )
    authorization = Authorization(Reviewer({}), clock)
    service = QueryService(
        known.cluster_state, clock, Rights(authorization), RateLimits(clock), decisions=_no_decisions
    )
    detail = StateApi(known.cluster_state, LargeReads(clock), see_everything)
    return HttpServer([*detail.routes(), *QueryApi(service, Callers(authorization, is_open=True)).routes()])


async def _no_decisions(limit: int) -> tuple[()]:
    del limit
    return ()


async def ask(*flags: str) -> int:
    """Serve, and return the exit code of schemathesis with these flags."""
    async with make_server() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "schemathesis.cli", "run", f"{server.url}/v1/openapi.json", "--checks", _CHECKS),
            *("--exclude-path", REPORTS, "--exclude-path", "/v1/plan", "--warnings", "off", *flags),
        )
        return await process.wait()


def main() -> int:
    """Return 0 if all is as the document says."""
    parser = argparse.ArgumentParser(prog="python -m tests.openapi", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=25, help="how long to ask at most")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    asked = parser.parse_args()
    flags = ["--max-time", str(asked.seconds), "--continue-on-failure"]
    if asked.seed is not None:
        flags += ["--seed", str(asked.seed)]
    return asyncio.run(ask(*flags))


if __name__ == "__main__":
    sys.exit(main())
