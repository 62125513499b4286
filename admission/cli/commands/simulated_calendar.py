"""Reads the calendar file of `berth simulate`: quota windows and reservations, as in a policy's spec."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from admission.cli.common.errors import WrongUsageError
from api.objects.common import Meta
from api.parsing.problems import SpecError
from api.policy import AdmissionPolicy
from api.policy_objects import AdmissionPolicyObject, to_admission_policy

_SECTIONS = frozenset({"quotaWindows", "reservations"})


def read_calendar(path: Path) -> AdmissionPolicy:
    """Return a policy with only the file's sections. Raises WrongUsageError that names file and field."""
    try:
        spec = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WrongUsageError(f"{path}: {error}") from error
    if not isinstance(spec, dict) or not spec.keys() <= _SECTIONS:
        raise WrongUsageError(
            f"{path} must be a mapping with quotaWindows, reservations or both, as in a policy"
        )
    # YAML has parsed timestamps as dates; JSON writes them as RFC 3339, which the model expects.
    body = msgspec.json.encode(spec)
    try:
        return to_admission_policy(
            AdmissionPolicyObject(metadata=Meta(name="calendar"), spec=msgspec.Raw(body))
        )
    except SpecError as error:
        raise WrongUsageError(f"{path}: {error}") from error
