"""The recommended AdmissionPolicy, which enables Berth's features beyond Kueue, as the demo applies it.

The package contains its text, because an installation has no copy of the repository. The same policy is in
`deploy/policies/recommended.yaml`, for `kubectl apply -f`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def recommended_text() -> str:
    """Return the policy as YAML, comments included."""
    return files("admission.cli.trial").joinpath("recommended.yaml").read_text(encoding="utf-8")


def recommended_policy() -> dict[str, Any]:
    """Return the policy as an object to create."""
    policy: dict[str, Any] = yaml.safe_load(recommended_text())
    return policy
