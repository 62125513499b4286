"""`berth policy show`: a policy as it is in force, with what it inherits, and the queues that it governs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import yaml

from api.keys import BERTH_VERSION
from api.objects.policies import AdmissionPolicyObject
from api.parsing.problems import SpecError
from api.policy import KUEUE, AdmissionPolicy, choose_policy
from api.policy_inheritance import inherited, origins
from api.policy_objects import to_admission_policy
from api.policy_sections import INHERITED
from api.queueing import ClusterQueue
from api.validation import read_admission_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicy:
    """A policy with the defaults of its fields and with what it inherits.

    `inherited` names the policy that each section comes from which it does not have itself. `governs` are the
    ClusterQueues that it applies to; `governed_by` names, by ClusterQueue, the policy of those that it only
    selects. `problem` says why it is not in force; then `spec` is as it was written.
    """

    name: str
    spec: Mapping[str, Any]
    inherited: Mapping[str, str] = field(default_factory=dict)
    governs: tuple[str, ...] = ()
    governed_by: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


class Policies:
    """The AdmissionPolicies and ClusterQueues of a cluster, of which single ones are shown."""

    def __init__(self, policies: Iterable[AdmissionPolicyObject], queues: Iterable[ClusterQueue]) -> None:
        self._objects = {one.metadata.name: one for one in policies}
        self._queues = tuple(queues)
        self._written: dict[str, AdmissionPolicy] = {}
        self._faults: dict[str, str] = {}
        for name, one in self._objects.items():
            try:
                self._written[name] = to_admission_policy(one)
            except SpecError as error:
                self._faults[name] = str(error)
        self._in_force, faults = inherited(self._written)
        self._faults |= faults

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all policies, sorted."""
        return tuple(sorted(self._objects))

    def problems(self) -> Mapping[str, str]:
        """Return of each policy that is not in force why it is not, by name."""
        return dict(sorted(self._faults.items()))

    def governing(self, queue: str) -> str | None:
        """Return the name of the policy that governs the ClusterQueue; None if there is none, or no queue."""
        found = next((one for one in self._queues if one.name == queue), None)
        if found is None:
            return None
        chosen = choose_policy(self._in_force.values(), found)
        return None if chosen is KUEUE else chosen.name

    def has_queue(self, name: str) -> bool:
        """Return whether there is such a ClusterQueue."""
        return any(one.name == name for one in self._queues)

    def show(self, name: str) -> EffectivePolicy:
        """Return one of the policies as it is in force."""
        written = msgspec.json.decode(self._objects[name].spec)
        if name in self._faults:
            return EffectivePolicy(name=name, spec=written, problem=self._faults[name])
        policy, from_bases = self._in_force[name], origins(self._written, self._written[name])
        spec = self._spec(name)
        spec["aliases"] = policy.aliases.value
        for section, base in from_bases.items():
            spec[section] = self._spec(base)[section]
        chosen = {
            one.name: choose_policy(self._in_force.values(), one).name
            for one in self._queues
            if policy.is_for(one)
        }
        return EffectivePolicy(
            name=name,
            spec=spec,
            inherited=from_bases,
            governs=tuple(sorted(queue for queue, by in chosen.items() if by == name)),
            governed_by={queue: by for queue, by in sorted(chosen.items()) if by != name},
        )

    def _spec(self, name: str) -> dict[str, Any]:
        """Return the spec of a valid policy with the defaults of its fields."""
        written = msgspec.json.decode(self._objects[name].spec)
        read = read_admission_policy(
            {
                "apiVersion": BERTH_VERSION,
                "kind": "AdmissionPolicy",
                "metadata": {"name": name},
                "spec": written,
            }
        )
        assert not isinstance(read, tuple), "only policies without faults are merged"
        return read.spec.model_dump(by_alias=True, exclude_none=True, mode="json")


def effective_body(policy: EffectivePolicy) -> dict[str, Any]:
    """Return the policy for -o json and yaml."""
    body = asdict(policy)
    body["governedBy"] = body.pop("governed_by")
    return body


def effective_text(policy: EffectivePolicy) -> str:
    """Return the policy for people: what it governs, then its spec as YAML with where each is from."""
    lines = [f"AdmissionPolicy {policy.name}"]
    if policy.problem:
        return "\n".join((*lines, f"is not in force: {policy.problem}", "", _yaml(policy.spec)))
    lines.append(f"governs: {', '.join(policy.governs) or 'no ClusterQueue'}")
    lines += [f"selects {queue}, which {by} governs" for queue, by in policy.governed_by.items()]
    off = [name for name in INHERITED if name not in policy.spec]
    if off:
        lines.append(f"off: {', '.join(off)}")
    for section, value in policy.spec.items():
        if section in policy.inherited:
            lines += ["", f"# from {policy.inherited[section]}"]
        elif isinstance(value, dict | list):
            lines.append("")
        lines.append(_yaml({section: value}))
    return "\n".join(lines)


def _yaml(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")
