"""Templates to answers: HTML that is safe whatever names its objects have.

Every value is escaped, and no script or style stands in a page, which the Content-Security-Policy forbids
a browser to run: the name of a tenant's Job stays text. Links are relative, so the page works behind a
proxy at any sub-path.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from admission.answers.starts import interval_text
from admission.controller.page.assets import Asset, encoded
from admission.controller.page.texts import clock_text, duration_text, relative_text
from api.http.server import Request, Response
from api.parsing.times import to_seconds

FOLDER = Path(__file__).parent / "templates"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Addresses contain names of Workloads. With no-referrer, Chromium's forms would be of the origin null.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Screen(NamedTuple):
    """An entry of the navigation. `path` is relative to the page's root."""

    name: str
    path: str
    label: str


SCREENS = (
    Screen("work", "./", "Work"),
    Screen("queues", "queues", "Queues"),
    Screen("cohorts", "cohorts", "Quota"),
    Screen("racks", "racks", "Racks"),
    Screen("calendar", "calendar", "Calendar"),
    Screen("what-if", "what-if", "What if"),
    Screen("decisions", "decisions", "Decisions"),
    Screen("health", "health", "Health"),
)


class Templates:
    """Renders the page's screens."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(assets=assets, screens=SCREENS, interval_text=interval_text)
        self._environment.filters.update(clock=clock_text, duration=duration_text)

    def render(
        self, name: str, request: Request, *, now: float, status: int = 200, values: Mapping[str, object]
    ) -> Response:
        """Return a screen. `now` is in Unix seconds; times are shown relative to it."""

        def relative(instant: str | float | None) -> str:
            at = to_seconds(instant) if isinstance(instant, str) and instant else instant
            return relative_text(at, now) if isinstance(at, float | int) else ""

        text = self._environment.get_template(name).render(
            root=root_of(request.path), now=now, relative=relative, query=request.query, **values
        )
        answer = encoded(request, text.encode(), "text/html; charset=utf-8", headers=SECURITY_HEADERS)
        return Response(
            status=status, body=answer.body, content_type=answer.content_type, headers=answer.headers
        )


def root_of(path: str) -> str:
    """Return the relative link from a page's path to the root."""
    return "../" * (path.count("/") - 1)
