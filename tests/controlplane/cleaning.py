"""Empties a shared control plane of what tests leave at cluster scope, so that the next begins with nothing.

Nothing watches over finalizers here unless a test runs a controller, so they are taken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.controlplane.rest import Rest, RestError

# Order matters: a webhook whose server is gone would refuse the deletions after it, and a Job's controller
# would create its Pods again. Kueue's and Berth's own kinds are asked for and come in between.
_WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
    for kind in ("validating", "mutating")
)
_BUILT_IN = ("/apis/batch/v1/jobs", "/api/v1/pods", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/leases")
_OUR_GROUPS = ("kueue.x-k8s.io", "berth.dev")
_KEPT_NAMESPACES = frozenset({"kube-system", "kube-node-lease"})
# For a request that deletes thousands.
_PATIENCE_SECONDS = 60.0
_DELETE_AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


def clean(rest: Rest, *, timeout_seconds: float = 20.0) -> None:
    """Delete webhooks, all objects of Kueue's and Berth's kinds, Jobs, Pods, Nodes and Leases.

    CustomResourceDefinitions and namespaces stay. Raises AssertionError when something will not go.
    """
    for collection in (*_WEBHOOKS, *_our_collections(rest), *_BUILT_IN):
        _empty(rest, collection, time.monotonic() + timeout_seconds)


def _our_collections(rest: Rest) -> Iterator[str]:
    """Yield each kind once, under the first version that serves it: not all are served under the same."""
    for group in rest.get("/apis")["groups"]:
        if group["name"] in _OUR_GROUPS:
            seen: set[str] = set()
            for version in group["versions"]:
                base = f"/apis/{version['groupVersion']}"
                kinds = {r["name"] for r in rest.get(base)["resources"] if "deletecollection" in r["verbs"]}
                yield from (f"{base}/{kind}" for kind in sorted(kinds - seen))
                seen |= kinds


def _empty(rest: Rest, collection: str, deadline: float) -> None:
    while members := list(_members(rest, collection)):
        if time.monotonic() > deadline:
            raise AssertionError(f"these will not go: {[f'{room}/{name}' for room, name in members]}")
        # A server deletes all of a namespace at one request; a shared one may hold thousands of objects.
        for room in sorted({room for room, _ in members}):
            rest.request("DELETE", room, _DELETE_AT_ONCE, timeout_seconds=_PATIENCE_SECONDS)
        for room, name in _members(rest, collection):
            _take_finalizers_off(rest, f"{room}/{name}")


def _members(rest: Rest, collection: str) -> Iterator[tuple[str, str]]:
    """Yield the collection of each object, that of its namespace if it has one, and its name."""
    base, plural = collection.rsplit("/", 1)
    for item in rest.get(collection)["items"]:
        metadata = item["metadata"]
        namespace = metadata.get("namespace")
        if namespace not in _KEPT_NAMESPACES:
            yield f"{base}/namespaces/{namespace}/{plural}" if namespace else collection, metadata["name"]


def _take_finalizers_off(rest: Rest, path: str) -> None:
    try:
        rest.patch(path, {"metadata": {"finalizers": None}})
    except RestError as error:
        # 404: it is gone. 409: another client wrote it; the next round tries again.
        if error.status not in (404, 409):
            raise
