"""The nodes on which pods of a Workload could not be bound: the annotation berth.dev/excluded-nodes.

    node-7=2026-05-01T10:00:00Z,node-9=2026-05-01T10:02:00Z

It is on the Workload, so that the next leader knows the nodes too. They are named as topology assignments
name them, by hostname.
"""

from __future__ import annotations

from collections.abc import Mapping

from api.parsing.times import to_rfc3339, to_seconds

# How many nodes are excluded at most, as many as status.unhealthyNodes takes; the newest are kept.
MOST_EXCLUDED = 8
# How long a node is excluded. What kept the pods off may be over by then, and the node is tried again.
EXCLUDED_SECONDS = 3600.0


def parse_excluded(text: str) -> dict[str, float]:
    """Return the nodes, each with the time (Unix seconds) since when it is excluded.

    An entry that cannot be read excludes no node: only the controller writes them.
    """
    found = {}
    for entry in text.split(","):
        name, is_timed, at = entry.partition("=")
        try:
            since = to_seconds(at)
        except ValueError:
            continue
        if is_timed:
            found[name] = since
    return found


def excluded_text(nodes: Mapping[str, float]) -> str | None:
    """Return the annotation's value for these nodes, the longest excluded first; None for none."""
    newest = sorted(nodes.items(), key=lambda entry: (entry[1], entry[0]))[-MOST_EXCLUDED:]
    return ",".join(f"{name}={to_rfc3339(at)}" for name, at in newest) or None
