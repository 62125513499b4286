"""Malformed HTTP requests, made of good ones by a seed: what clients send by mistake or to do harm."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# Values that a parser or a handler may not expect in place of another.
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**40, 0.5,
    1e308, "", " ", "-1", "NaN", "1e999",
    "\x00", "\r\n\x1b[31m", "\u2028\u202e", "\ud83d\ude00", "../../etc/passwd", "%s%n{0}", "a" * 10_000,
    [], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, [1] * 500,
)  # fmt: skip
_WORDS = (
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5", "Content-Length: 0x10",
    "Transfer-Encoding: chunked", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: x",
    "Content-Encoding: gzip", "Content-Encoding: br", "Content-Encoding: deflate, gzip",
    "Expect: 100-continue", "Expect: magic", "Content-Type: application/json; charset=utf-16",
    "Content-Type: \xff",
    "Host:", "Host: a b",
    "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c", "Authorization: Bearer",
    "Authorization: Bearer a.b.c",
    "Authorization: Basic \xc3\xa9", "Authorization: Bearer " + "e" * 9000,
    "X-A: " + "b" * 9000, " X: y", "X y: z",
    "X-Remote-User: admin", "Range: bytes=0-", "Cookie: " + "c" * 4000, "If-None-Match: *", ": empty",
)  # fmt: skip
_LINES = (
    "GET", "GET /", "GET / HTTP/9.9", "GET  /  HTTP/1.1", "\x16\x03\x01\x02\x00\x01",
    "PRI * HTTP/2.0", "OPTIONS * HTTP/1.1",
    "CONNECT a:1 HTTP/1.1", "GET http://[::1 HTTP/1.1", "GET /%00 HTTP/1.1", "GET /%ff%fe HTTP/1.1",
    "GET /\xff HTTP/1.1",
    "GET /" + "a" * 9000 + " HTTP/1.1", "TRACE / HTTP/1.1", "get / http/1.1",
    "GET /v1/../../x HTTP/1.1", "POST // HTTP/1.1",
)  # fmt: skip
_QUERIES = (
    "limit=-1", "limit=99999999999999999999", "limit=1e3", "limit=%00", "offset=NaN", "limit=",
    "limit=1&limit=x", "workload=%ff",
    "workload=a%2Fb", "what=%0d%0a", "=&=&", "%", "offset=" + "9" * 500,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """A good request: a method, a path, and a body that is encoded as JSON if there is one."""

    method: str
    path: str
    body: Any = None

    def to_bytes(self, body: bytes | None = None, *, headers: Sequence[str] = (), query: str = "") -> bytes:
        """Return it as bytes; with another body, more headers and a query."""
        if body is None:
            body = b"" if self.body is None else json.dumps(self.body).encode()
        path = f"{self.path}?{query}" if query else self.path
        lines = [f"{self.method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        if body and not any(one.startswith("Content-Length") for one in headers):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def malformed(samples: Sequence[Sample], count: int, *, seed: int) -> Iterator[bytes]:
    """Yield `count` malformed requests; equal ones for equal seeds."""
    chance = random.Random(seed)
    ways = (
        _other_value,
        _other_value,
        _other_value,
        _cut_body,
        _other_headers,
        _other_query,
        _flipped,
        _other_line,
    )
    for _ in range(count):
        yield chance.choice(ways)(chance.choice(samples), chance)


def _other_value(sample: Sample, chance: random.Random) -> bytes:
    """Put unexpected values in places of the body."""
    if sample.body is None:
        return _other_query(sample, chance)
    body = copy.deepcopy(sample.body)
    for _ in range(chance.randint(1, 3)):
        places = list(_places(body))
        if not places:
            break
        holder, key = chance.choice(places)
        holder[key] = copy.deepcopy(chance.choice(_VALUES))
    return sample.to_bytes(json.dumps(body).encode("utf-8", "surrogatepass"))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _cut_body(sample: Sample, chance: random.Random) -> bytes:
    """Break the JSON or its encoding."""
    good = json.dumps(sample.body or {"a": [1]}).encode()
    at = chance.randrange(len(good))
    makers: tuple[Callable[[], tuple[bytes, Sequence[str]]], ...] = (
        lambda: (good[:at], ()),
        lambda: (good[:at] + bytes([chance.randrange(256)]) + good[at:], ()),
        lambda: (b"[" * 20_000, ()),
        lambda: (b'{"a":' * 20_000, ()),
        lambda: (gzip.compress(good)[:-5], ("Content-Encoding: gzip",)),
        lambda: (gzip.compress(b" " * (9 << 20)), ("Content-Encoding: gzip",)),
        lambda: (chance.randbytes(200), ("Content-Encoding: deflate",)),
        lambda: (b"zz\r\n" + good, ("Transfer-Encoding: chunked", "Content-Length: 3")),
        lambda: (good.decode().encode("utf-16"), ()),
    )
    body, headers = chance.choice(makers)()
    return sample.to_bytes(body, headers=headers)


def _other_headers(sample: Sample, chance: random.Random) -> bytes:
    return sample.to_bytes(headers=chance.sample(_WORDS, chance.randint(1, 3)))


def _other_query(sample: Sample, chance: random.Random) -> bytes:
    return sample.to_bytes(query="&".join(chance.sample(_QUERIES, chance.randint(1, 3))))


def _flipped(sample: Sample, chance: random.Random) -> bytes:
    """Change, drop or repeat bytes anywhere."""
    found = bytearray(sample.to_bytes())
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(found))
        found[at : at + chance.randint(0, 4)] = chance.choice(
            (b"", chance.randbytes(2), bytes(found[at : at + 9]))
        )
    return bytes(found)


def _other_line(sample: Sample, chance: random.Random) -> bytes:
    _, _, rest = sample.to_bytes().partition(b"\r\n")
    return chance.choice(_LINES).encode("latin-1") + b"\r\n" + rest
