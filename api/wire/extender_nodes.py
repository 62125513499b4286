"""A cache of the whole nodes in scheduler extender requests, decoded again only if their text changes.

kube-scheduler sends every node with every pod that it filters: 25 MB for 5,000 nodes, of which only a few
have changed since the last pod. Decoding them as JSON takes longer than all other work together. So the texts
of the nodes are kept, and a request is compared with them from one node to the next:

    …"Nodes":{"metadata":{},"items":[{"metadata":{"name":"node-1",…},{"metadata":{"name":"node-2",…}]},"NodeNames"…
                                     └ the text kept for this name? ┘└ compare, continue behind it

A comparison costs a tenth of decoding. It does not rely on resource versions: a node is taken from the cache
only if its bytes are equal. If they differ, the end of the node is searched, and the text before it is
decoded. Successful decoding proves that the end is right, because a truncated object is not valid JSON. A
request that is not formatted as Go formats it is decoded in the ordinary way (`api.wire.extender`).
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

_Node = TypeVar("_Node")

_NODES = b'"Nodes":{'
_ITEMS = b'"items":['
# Maximum number of bytes between the start of a node and its name, in Go's order of fields. They contain
# apiVersion and kind, or nothing, because kube-scheduler's own nodes have lost these fields.
_NAME = b'"metadata":{"name":"'
_MOST_BYTES_BEFORE_NAME = 64
# A name has up to 253 characters, followed by a quote.
_MOST_NAME_BYTES = 254
_LAST = b'}]},"NodeNames":'
# Maximum size of the cache. Beyond it, the whole cache is dropped, and existing nodes are decoded once more.
_MOST_BYTES = 64 << 20


class _Known(NamedTuple, Generic[_Node]):
    text: bytes
    raw: msgspec.Raw
    node: _Node


class Cut(NamedTuple, Generic[_Node]):
    """The decoded nodes of a request and their bytes, and the request without them."""

    nodes: tuple[_Node, ...]
    raw: tuple[msgspec.Raw, ...]
    rest: bytes


class NodeTexts(Generic[_Node]):
    """The texts of the nodes in earlier requests, and the decoded nodes. It is used by a single task."""

    def __init__(self, decoder: msgspec.json.Decoder[_Node]) -> None:
        self._decoder = decoder
        # Keyed by the name of the node.
        self._known: dict[bytes, _Known[_Node]] = {}
        self._size = 0

    def cut(self, body: bytes | bytearray) -> Cut[_Node] | None:
        """Return the nodes of a request, or None if it is not formatted as Go would format it."""
        nodes = body.find(_NODES)
        items = body.find(_ITEMS, nodes) + len(_ITEMS)
        name = body.find(_NAME, items, items + _MOST_BYTES_BEFORE_NAME)
        # find() returns -1 for a missing text, so that `items` is less than the length that was added.
        if nodes < 0 or items < len(_ITEMS) or name < 0:
            return None
        # All nodes of a request begin in the same way, since one program wrote them. So the beginning is
        # taken from the first node and required of all others.
        opening = bytes(body[items : name + len(_NAME)])
        at, found = items, list[_Known[_Node]]()
        while True:
            named = at + len(opening)
            quote = body.find(b'"', named, named + _MOST_NAME_BYTES)
            if quote < 0:
                return None
            key = bytes(body[named:quote])
            known = self._known.get(key)
            # The whole cached text is compared, including the closing brace, so that a node which has grown
            # at its end does not match.
            if known is None or not body.startswith(known.text, at):
                known = self._learn(key, body, at, b"}," + opening)
                if known is None:
                    return None
            found.append(known)
            at += len(known.text)
            if not body.startswith(b",", at):
                break
            at += 1
        if not body.startswith(b"]", at):
            return None
        return Cut(
            nodes=tuple(one.node for one in found),
            raw=tuple(one.raw for one in found),
            rest=bytes(body[:items] + body[at:]),
        )

    def _learn(self, key: bytes, body: bytes | bytearray, at: int, next_: bytes) -> _Known[_Node] | None:
        """Decode the node that begins at `at` and keep its text; return None if its end is not found.

        `next_` is the text that separates the end of a node from the next one.
        """
        # A node may contain this text itself (an annotation that quotes a node). Then the text before it is
        # not complete JSON, and the request is decoded in the ordinary way.
        end = body.find(next_, at)
        if end < 0:
            end = body.find(_LAST, at)
        if end < 0:
            return None
        # Copied, because a slice of the request would keep its 25 MB in memory.
        text = bytes(body[at : end + 1])
        try:
            node = self._decoder.decode(text)
        except msgspec.DecodeError:
            return None
        former = self._known.pop(key, None)
        self._size += len(text) - (len(former.text) if former is not None else 0)
        # Dropped as a whole and not node by node, because it is unknown which nodes were deleted.
        if self._size > _MOST_BYTES:
            self._known.clear()
            self._size = len(text)
        known = self._known[key] = _Known(text, msgspec.Raw(text), node)
        return known
