"""Status of AdmissionChecks that ask the cluster's autoscaler for nodes: whether they can be evaluated.

Source: Kueue, pkg/controller/admissionchecks/provisioning/admissioncheck_reconciler.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.cache.specs import Specs
from api.keys import KUEUE_GROUP
from api.provisioning import CONFIG_KIND, ProvisioningConfig, parameters_problem
from api.queueing import AdmissionCheck
from api.status_edit import StatusEdit


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """Whether a check can be evaluated. `reason` is a word for machines."""

    is_active: bool
    reason: str
    message: str


def provisioning_config(specs: Specs, check: AdmissionCheck) -> ProvisioningConfig | None:
    """Return the settings that the check names; None if it names none that can be read."""
    if check.parameters is None or parameters_problem(check.parameters) is not None:
        return None
    if (ProvisioningConfig, check.parameters.name) in specs.unreadable:
        return None
    return specs.provisioning_configs.get(check.parameters.name)


def check_view(specs: Specs, check: AdmissionCheck) -> CheckView:
    """Return whether the check can be evaluated."""
    if (problem := _problem(specs, check)) is not None:
        return CheckView(is_active=False, reason="BadParametersRef", message=problem)
    if not specs.is_provisioning_served:
        message = (
            "the cluster has no kind ProvisioningRequest (autoscaling.x-k8s.io/v1): install its definition"
        )
        return CheckView(is_active=False, reason="NoProvisioningRequests", message=message)
    return CheckView(is_active=True, reason="Active", message="The admission check is active")


def check_status(raw: bytes, view: CheckView, *, now: float) -> bytes | None:
    """Return the AdmissionCheck with its condition brought up to date, None if nothing would change."""
    edit = StatusEdit(raw, now=now)
    edit.set_condition("Active", view.is_active, reason=view.reason, message=view.message)
    return edit.to_bytes() if edit.is_changed else None


def _problem(specs: Specs, check: AdmissionCheck) -> str | None:
    """Return why the check has no settings, in Kueue's words where it has some; None if it has."""
    parameters = check.parameters
    if (problem := parameters_problem(parameters)) is not None or parameters is None:
        return problem
    unreadable = specs.unreadable.get((ProvisioningConfig, parameters.name))
    if unreadable is not None:
        return f"{CONFIG_KIND} {parameters.name} cannot be read: {unreadable}"
    if parameters.name in specs.provisioning_configs:
        return None
    return f'{CONFIG_KIND}.{KUEUE_GROUP} "{parameters.name}" not found'
