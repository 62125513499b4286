"""What a replica is: its version, and the namespace of its lease and Secrets."""

from __future__ import annotations

import os

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
DEFAULT_NAMESPACE = "berth-system"


def own_namespace(given: str | None) -> str:
    """Return the namespace of the lease: `given`, else the pod's own, else berth-system."""
    if given:
        return given
    try:
        with open(NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip() or DEFAULT_NAMESPACE
    except OSError:
        # The variable from the downward API, for a pod without a mounted service account.
        return os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE


def own_version() -> str:
    """Return the installed version; "dev" for a checkout that was not installed."""
    # Imported late: commands that only need the namespace would pay a tenth of their time for it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("berth-queue")
    except PackageNotFoundError:
        return "dev"
