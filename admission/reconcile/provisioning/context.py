"""What must be known of the cluster to ask its autoscaler for the nodes of one Workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from admission.reconcile.job.context import FlavorInjection
from api.objects.common import Meta
from api.provisioning import ProvisioningConfig, ProvisioningRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningContext:
    """The checks of a Workload that its autoscaler answers, and the requests that it owns.

    `configs` are the settings by check, None for a check whose settings are missing. `template` returns the
    metadata of a PodTemplate of the Workload's namespace by name. `refused` returns why the API server did
    not create an object of this kind and name. `injection` returns node labels and tolerations of a pod set's
    flavors.
    """

    configs: Mapping[str, ProvisioningConfig | None]
    injection: FlavorInjection
    requests: tuple[ProvisioningRequest, ...] = ()
    template: Callable[[str], Meta | None] = field(default=lambda _: None)
    refused: Callable[[str, str], str | None] = field(default=lambda *_: None)
