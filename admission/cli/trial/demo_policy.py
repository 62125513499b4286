"""The AdmissionPolicy of the demo, which promises starts to Jobs that wait.

The package contains its text, because an installation has no copy of the repository. The same policy is in
`deploy/policies/backfill.yaml`, for `kubectl apply -f`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def demo_policy_text() -> str:
    """Return the policy as YAML, comments included."""
    return files("admission.cli.trial").joinpath("backfill.yaml").read_text(encoding="utf-8")


def demo_policy() -> dict[str, Any]:
    """Return the policy as an object to create."""
    policy: dict[str, Any] = yaml.safe_load(demo_policy_text())
    return policy
