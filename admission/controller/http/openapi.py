"""The OpenAPI document of /v1. Parameters, fields and their meaning come from what serves them.

Lists: `admission.answers.lists` says what they can be filtered and sorted by, and the docstrings and fields
of `admission.answers.items` describe what they hold.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.answers.health import Health
from admission.answers.items import Kind, Page
from admission.answers.lists import choices_of, item_type
from admission.answers.selection import DEFAULT_LIMIT, MAX_LIMIT
from admission.answers.usage import Usage, UsageBy
from admission.answers.what_if import Question, WhatIf
from admission.controller.http.checkpoint_reports import REPORT_OPERATION
from admission.controller.queries.service import BY_NAME, NAMESPACED

EXPLANATION = "/v1/workloads/{namespace}/{name}/explanation"
WHAT_IF = "/v1/what-if"
USAGE = "/v1/usage"
HEALTH = "/v1/health"
WATCH = "watch"
HELP = "help"
_REFUSALS = {
    "400": "a parameter that does not exist or cannot be read; the message names the nearest one",
    "401": "no token, or one that the API server does not accept",
    "403": "the token's user may not list Workloads there",
    "404": "there is no such object, or it may not be seen",
    "429": "the caller asks too often; Retry-After says when to come again",
    "503": "a part that is needed does not answer now; see Retry-After",
}


def list_path(kind: Kind) -> str:
    """Return the path of a list."""
    return f"/v1/{kind}"


def item_path(kind: Kind) -> str:
    """Return the path of one item of a list."""
    return f"{list_path(kind)}/{'{namespace}/' if kind in NAMESPACED else ''}{{name}}"


def document() -> dict[str, Any]:
    """Return the document."""
    pages: list[Any] = [Page[item_type(kind)] for kind in Kind]  # type: ignore[misc]
    types: list[Any] = [*(item_type(kind) for kind in Kind), *pages, Question, WhatIf, Usage, Health]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shapes = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for kind, page in zip(Kind, pages, strict=True):
        listed = _get(f"The {kind} that the caller may see", shapes[page], _list_query(kind))
        listed["get"]["responses"]["200"]["content"]["text/event-stream"] = {"schema": _EVENT}
        paths[list_path(kind)] = listed
        if kind in BY_NAME:
            places = [_parameter(name, "path", "string") for name in _placeholders(item_path(kind))]
            paths[item_path(kind)] = _get(f"One of the {kind}", shapes[item_type(kind)], places)
    paths[USAGE] = _get("What Workloads have used, waited for and lost", shapes[Usage], _USAGE_QUERY)
    paths[HEALTH] = _get("Whether this replica works, and which objects are of no use", shapes[Health], [])
    paths |= {**_OTHERS, WHAT_IF: {"post": _post(shapes[Question], shapes[WhatIf])}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Berth", "version": "v1"},
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
        },
        "paths": paths,
    }


def _list_query(kind: Kind) -> list[dict[str, Any]]:
    choices = choices_of(kind)
    orders = [name for one in choices.orders for name in (one, f"-{one}")]
    return [
        *(_parameter(name, "query", "string") for name in choices.filters),
        {**_parameter("sort", "query", "string"), "schema": {"type": "string", "enum": orders}},
        {
            **_parameter("limit", "query", "integer"),
            "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        },
        _parameter("continue", "query", "string"),
        {**_parameter(WATCH, "query", "boolean"), "description": "a stream of server-sent events"},
    ]


def _post(question: Any, answer: Any) -> dict[str, Any]:
    asked = _get("What would happen if objects were submitted, changed or removed", answer, [])["get"]
    return {**asked, "requestBody": {"required": True, "content": {"application/json": {"schema": question}}}}


def _placeholders(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _parameter(name: str, place: str, type_: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": type_}}


def _get(summary: str, shape: Any, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    answer = {"description": "as asked", "content": {"application/json": {"schema": shape}}}
    refusals = {status: {"description": why} for status, why in _REFUSALS.items()}
    return {"get": {"summary": summary, "parameters": parameters, "responses": {"200": answer, **refusals}}}


# One of a list that is watched. `data` is the JSON of an item.
_EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["reset", "added", "modified", "deleted"]},
        "data": {"type": "string"},
    },
}
_USAGE_QUERY = [
    {**_parameter("by", "query", "string"), "schema": {"type": "string", "enum": [*UsageBy]}},
    {
        **_parameter("since", "query", "string"),
        "description": "a time (RFC 3339), or a duration before now such as 12h or 30d; default: a week",
    },
    _parameter("namespace", "query", "string"),
]
# What is not made of items: an object of many parts has its meaning in the docs.
_ANY = {"type": "object"}
_OTHERS: dict[str, Any] = {
    "/v1/clusterqueues/{name}/pendingworkloads": _get(
        "Pending Workloads of a ClusterQueue in order",
        _ANY,
        [
            _parameter("name", "path", "string"),
            _parameter("offset", "query", "integer"),
            _parameter("limit", "query", "integer"),
        ],
    ),
    "/v1/workloads/{namespace}/{name}": _get(
        "One Workload, and what keeps it waiting",
        _ANY,
        [_parameter("namespace", "path", "string"), _parameter("name", "path", "string")],
    ),
    EXPLANATION: _get(
        "What becomes of a Workload, what holds what it lacks, and what would help",
        _ANY,
        [
            _parameter("namespace", "path", "string"),
            _parameter("name", "path", "string"),
            {**_parameter(HELP, "query", "boolean"), "description": "try what would help"},
        ],
    ),
    "/v1/plan": _get("All planned starts, and Workloads that run ahead of one on a lease", _ANY, []),
    "/v1/checkpoints": {"post": REPORT_OPERATION},
}
