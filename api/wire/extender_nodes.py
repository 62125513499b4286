"""Whole nodes in a scheduler extender's request, each read once for as long as its text stays the same.

kube-scheduler sends every node with every pod that it asks about: 25 MB for 5,000 nodes, of which a handful
have changed since the pod before. Reading them as JSON takes longer than all else together. So the texts of
the nodes are kept, and a request is walked along:

    …"Nodes":{"metadata":{},"items":[{"metadata":{"name":"node-1",…},{"metadata":{"name":"node-2",…}]},"NodeNames"…
                                     └ the text kept for this name? ┘└ compare, go on behind it

Comparing costs a tenth of reading. It trusts nobody's version number: only the very bytes that have been read
as a node before are taken for that node. Where they differ, the node's end is looked for, and what lies
before it is read; that it can be read proves that the end was the right one, because an object that is cut
short is no JSON. Whoever writes nodes in another way than Go does is read in the ordinary way
(`api.wire.extender`).
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

_Node = TypeVar("_Node")

_NODES = b'"Nodes":{'
_ITEMS = b'"items":['
# At most these bytes lie between the beginning of a node and its name, as Go orders the fields.
# Before it stand apiVersion and kind, or nothing: kube-scheduler's own nodes have lost them.
_NAME = b'"metadata":{"name":"'
_MOST_BYTES_BEFORE_NAME = 64
# A name has up to 253 characters, and a quote behind it.
_MOST_NAME_BYTES = 254
_LAST = b'}]},"NodeNames":'
# What is kept at most. Beyond it all is forgotten, and what is still there is read once more.
_MOST_BYTES = 64 << 20


class _Known(NamedTuple, Generic[_Node]):
    text: bytes
    raw: msgspec.Raw
    node: _Node


class Cut(NamedTuple, Generic[_Node]):
    """A request's nodes, what was read of each and its bytes, and the request without them."""

    nodes: tuple[_Node, ...]
    raw: tuple[msgspec.Raw, ...]
    rest: bytes


class NodeTexts(Generic[_Node]):
    """The texts of the nodes that were sent before, and what was read of them. One task owns it."""

    def __init__(self, decoder: msgspec.json.Decoder[_Node]) -> None:
        self._decoder = decoder
        # By name.
        self._known: dict[bytes, _Known[_Node]] = {}
        self._size = 0

    def cut(self, body: bytes | bytearray) -> Cut[_Node] | None:
        """Return the nodes of a request, None where it is not written as Go would write it."""
        nodes = body.find(_NODES)
        items = body.find(_ITEMS, nodes) + len(_ITEMS)
        name = body.find(_NAME, items, items + _MOST_BYTES_BEFORE_NAME)
        # -1 plus a length is less than the length: nothing was found.
        if nodes < 0 or items < len(_ITEMS) or name < 0:
            return None
        # All nodes of one request begin alike, since one program wrote them: so the beginning is
        # taken from the first and demanded of all.
        opening = bytes(body[items : name + len(_NAME)])
        at, found = items, list[_Known[_Node]]()
        while True:
            named = at + len(opening)
            quote = body.find(b'"', named, named + _MOST_NAME_BYTES)
            if quote < 0:
                return None
            key = bytes(body[named:quote])
            known = self._known.get(key)
            # The whole remembered text, the closing brace included: a node that has grown at its
            # end does not pass for its beginning.
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
        """Read the node that begins at `at` and keep its text, None where its end is not to be found.

        `next_` is how a node ends and another begins.
        """
        # Looked for from the beginning of this node, and a node may contain these bytes itself (an
        # annotation that quotes a node): then what lies before them is no whole JSON, and the
        # request is read in the ordinary way.
        end = body.find(next_, at)
        if end < 0:
            end = body.find(_LAST, at)
        if end < 0:
            return None
        # A copy: a slice of the request would keep its 25 MB alive.
        text = bytes(body[at : end + 1])
        try:
            node = self._decoder.decode(text)
        except msgspec.DecodeError:
            return None
        former = self._known.pop(key, None)
        self._size += len(text) - (len(former.text) if former is not None else 0)
        # Forgotten as a whole and not one by one: nothing tells which nodes are gone.
        if self._size > _MOST_BYTES:
            self._known.clear()
            self._size = len(text)
        known = self._known[key] = _Known(text, msgspec.Raw(text), node)
        return known
