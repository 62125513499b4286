"""The history of an API server as its resourceVersions show it: they grow until etcd is restored.

etcd numbers all changes. A server whose etcd was restored from a backup continues at an older number: objects
return to earlier states, and later ones are gone. To a client that compares versions, every change after that
looks like a late one, and a watch from a version of the lost history stays silent. Nothing that such a client
knows can be trusted. So it begins again with nothing, as the documentation of Kubernetes asks of all clients:
https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from api.kube.errors import first_leaf

log = logging.getLogger("berth.kube.history")


class ClusterRestored(Exception):
    """The server's versions went back. All that was learned from it has to be dropped and read again.

    Not a KubeError: no request is worth repeating with what is known.
    """


class History:
    """The latest version that was seen of one kind, or of one object. `what` names it in the error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._latest = ""

    def see(self, version: str) -> None:
        """Note a version that the server shows now. Raises ClusterRestored if it has shown a later one.

        Only for reads that cannot be late: a list or object read by quorum, an answer to a write, a watch.
        """
        self.check(version)
        if version_number(version):
            self._latest = version

    def check(self, version: str) -> None:
        """Raise ClusterRestored as `see` does. The version is not noted: earlier changes may be shown yet."""
        check_order(self._what, known=self._latest, shown=version)


def check_order(what: str, *, known: str, shown: str) -> None:
    """Raise ClusterRestored if the version that is shown now is older than the known one.

    Versions that are not numbers have no order.
    """
    if 0 < version_number(shown) < version_number(known):
        raise ClusterRestored(
            f"the API server shows resourceVersion {shown} of {what} after {known}: "
            f"its etcd was restored from a backup"
        )


def version_number(text: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not one.

    Since Kubernetes 1.35 the resourceVersions of one resource compare as integers by contract (KEP-5504).
    Every server did so in practice before.
    """
    return int(text) if text.isdecimal() and text.isascii() else 0


async def begin_again_when_restored(run: Callable[[], Awaitable[None]]) -> None:
    """Run; each time that ends because the cluster was restored from a backup, run again.

    `run` must keep nothing from one call to the next that it has learned from the server.
    """
    is_restored = True
    while is_restored:
        is_restored = False
        try:
            await run()
        # `except*`, because the tasks of a TaskGroup may notice it one after another.
        except* ClusterRestored as group:
            is_restored = True
            log.error("cluster_restored note=%r error=%r", "beginning again", str(first_leaf(group)))
