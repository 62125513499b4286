"""Rows of `berth get policies`: which policies are in force, for which queues, with which sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from api.objects.common import Wire, WireCondition
from api.objects.policies import AdmissionPolicyObject
from api.policy_sections import INHERITED

_T = TypeVar("_T", bound=Wire)

# Fields of the spec that select the ClusterQueues; all others are sections that enable a feature.
_BINDING = frozenset({"clusterQueues", "precedence", "base"})
_INHERITED = frozenset({*INHERITED, "aliases"})


class WireQuotaInForce(Wire, frozen=True):
    """A quota that an open window uses instead of the one in the ClusterQueue."""

    cluster_queue: str
    flavor: str
    resource: str
    window: str
    nominal_quota: str | int | float
    until: str | None = None


class _Status(Wire, frozen=True):
    conditions: tuple[WireCondition, ...] | None = None
    cluster_queues: tuple[str, ...] | None = None
    cluster_queue_count: int = 0
    quotas_in_force: tuple[WireQuotaInForce, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy. `accepted` is None if no controller has written the condition yet."""

    name: str
    precedence: int
    accepted: bool | None
    reason: str
    message: str
    cluster_queues: tuple[str, ...]
    cluster_queue_count: int
    sections: tuple[str, ...]


def policy_rows(policies: Iterable[AdmissionPolicyObject]) -> tuple[PolicyRow, ...]:
    """Return a row for each policy, in the order of precedence."""
    policies = tuple(policies)
    specs = {policy.metadata.name: _spec(policy) for policy in policies}
    rows = [_policy_row(policy, specs) for policy in policies]
    return tuple(sorted(rows, key=lambda row: (-row.precedence, row.name)))


def quotas_in_force(policies: Iterable[AdmissionPolicyObject]) -> tuple[WireQuotaInForce, ...]:
    """Return the quotas of open windows, as the policies' statuses list them."""
    return tuple(one for policy in policies for one in decoded(policy.status, _Status).quotas_in_force or ())


def _policy_row(policy: AdmissionPolicyObject, specs: Mapping[str, dict[str, Any]]) -> PolicyRow:
    status, spec = decoded(policy.status, _Status), specs[policy.metadata.name]
    accepted = next((one for one in status.conditions or () if one.type == "Accepted"), None)
    precedence = spec.get("precedence")
    return PolicyRow(
        name=policy.metadata.name,
        precedence=precedence if isinstance(precedence, int) else 0,
        accepted=None if accepted is None else accepted.status == "True",
        reason=accepted.reason if accepted else "",
        message=accepted.message if accepted else "no controller has processed it yet",
        cluster_queues=status.cluster_queues or (),
        cluster_queue_count=status.cluster_queue_count,
        sections=_sections(policy.metadata.name, specs),
    )


def _sections(name: str, specs: Mapping[str, dict[str, Any]]) -> tuple[str, ...]:
    """Return the sections of a policy, then those that it inherits."""
    found: dict[str, None] = {}
    seen: set[object] = set()
    at: object = name
    while isinstance(at, str) and at in specs and at not in seen:
        seen.add(at)
        own = (one for one, value in specs[at].items() if one not in _BINDING and value not in (None, "None"))
        found.update(dict.fromkeys(one for one in own if at == name or one in _INHERITED))
        at = specs[at].get("base")
    return tuple(found)


def decoded(raw: msgspec.Raw, type_: type[_T]) -> _T:
    """Return a part of an object as `type_`, empty if it cannot be read.

    The API server validates specs, and a condition reports the faults that it accepted.
    """
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.DecodeError:
        return type_()


def _spec(policy: AdmissionPolicyObject) -> dict[str, Any]:
    spec = msgspec.json.decode(policy.spec)
    return spec if isinstance(spec, dict) else {}
