"""Policies that name another as their base take from it the sections that they do not have themselves.

Sections are taken as a whole: a section with its defaults cannot be told from one whose fields were written.
The calendar is not inherited, because its entries are of single ClusterQueues and LocalQueues. A policy whose
chain of bases cannot be followed to its end is not in force: without sections that its author counts on, it
would decide otherwise than was asked.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from api.policy import AdmissionPolicy, Aliases
from api.policy_sections import INHERITED


def inherited(
    written: Mapping[str, AdmissionPolicy],
) -> tuple[Mapping[str, AdmissionPolicy], Mapping[str, str]]:
    """Return the policies in force with what they inherit, and of the others a sentence that says why not."""
    in_force: dict[str, AdmissionPolicy] = {}
    faults: dict[str, str] = {}
    for policy in written.values():
        # Those that others inherit from are worked out once.
        chain, end = _chain(written, policy, in_force)
        if end is None or end in in_force:
            base = None if end is None else in_force[end]
            for one in reversed(chain):
                base = in_force[one] = _merged(written[one], base)
        elif end in chain:
            names = " -> ".join([*chain, end])
            faults[policy.name] = f"spec.base leads in a circle: {names}; take one of them out"
        else:
            faults[policy.name] = _missing(chain, end)
    return in_force, faults


def origins(written: Mapping[str, AdmissionPolicy], policy: AdmissionPolicy) -> Mapping[str, str]:
    """Return the sections that a policy in force inherits, with the name of the policy that has each."""
    _, *bases = _chain(written, policy)[0]
    sections = {name: [base for base in bases if getattr(written[base], name)] for name in INHERITED}
    return {name: found[0] for name, found in sections.items() if found and not getattr(policy, name)}


def may_be_base(written: Mapping[str, AdmissionPolicy], policy: AdmissionPolicy, base: str) -> bool:
    """Return whether the policy could name this one as its base, without a circle and for one it has now."""
    return policy.base is None and base in written and policy.name not in _chain(written, written[base])[0]


def _chain(
    written: Mapping[str, AdmissionPolicy], policy: AdmissionPolicy, until: Container[str] = ()
) -> tuple[list[str], str | None]:
    """Return the names of a policy and its bases, and the base that is not followed: None if there is none.

    It is one in `until`, one that does not exist, or one that is among the names already.
    """
    chain: dict[str, None] = {}
    at: str | None = policy.name
    while at is not None and at in written and at not in chain and at not in until:
        chain[at] = None
        at = written[at].base
    return [*chain], at


def _missing(chain: list[str], base: str) -> str:
    of = f" of its base {chain[-1]}" if len(chain) > 1 else ""
    return f"spec.base{of} is {base!r}, but no valid AdmissionPolicy has this name; create or correct it"


def _merged(policy: AdmissionPolicy, base: AdmissionPolicy | None) -> AdmissionPolicy:
    """Return the policy with each section of its base, as that is in force, that it does not have itself."""
    if base is None:
        return policy
    sections: dict[str, Any] = {name: getattr(policy, name) or getattr(base, name) for name in INHERITED}
    reads_aliases = policy.reads_aliases or base.reads_aliases
    return replace(policy, aliases=Aliases.ARTICLES if reads_aliases else Aliases.NONE, **sections)
