"""Style sheets and scripts: each under a name that changes with its content, compressed once.

A browser keeps them until the content changes. Nothing is built: the files are served as they are.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from api.http.server import HttpError, Request, Response, Route

FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_DIGITS = 12
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file, as it is and compressed. `path` is relative to the page's root."""

    path: str
    content: bytes
    compressed: bytes
    content_type: str


def read_assets(folder: Path = FOLDER) -> Mapping[str, Asset]:
    """Return the style sheets and scripts of a folder and those below it, by file name."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return {path.name: _asset(path) for path in files}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
    return Asset(
        path=f"static/{digest}/{path.name}",
        content=content,
        # Without a time, so that each replica serves the same bytes.
        compressed=gzip.compress(content, mtime=0),
        content_type=_TYPES[path.suffix],
    )


def asset_route(assets: Mapping[str, Asset]) -> Route:
    """Return the route of all assets. They are the same for all, so no right is needed."""
    by_path = {f"/{one.path}": one for one in assets.values()}

    async def handle(request: Request) -> Response:
        found = by_path.get(request.path)
        if found is None:
            raise HttpError(404, f"there is nothing at {request.path}")
        return encoded(request, found.content, found.content_type, compressed=found.compressed, headers=_KEPT)

    return Route("GET", "/static/{digest}/{name}", handle)


def encoded(
    request: Request,
    content: bytes,
    content_type: str,
    *,
    headers: Mapping[str, str],
    compressed: bytes | None = None,
) -> Response:
    """Return an answer, compressed for a client that takes gzip."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(body=content, content_type=content_type, headers=headers)
    body = gzip.compress(content, 5, mtime=0) if compressed is None else compressed
    return Response(body=body, content_type=content_type, headers={**headers, "Content-Encoding": "gzip"})
