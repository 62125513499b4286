"""Policies that name another as their base take from it the sections that they do not have themselves.

Sections are taken as a whole: a section with its defaults cannot be told from one whose fields were written.
The calendar is not inherited, because its entries are of single ClusterQueues and LocalQueues. A policy whose
chain of bases cannot be followed to its end is not in force: without sections that its author counts on, it
would decide otherwise than was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from api.policy import AdmissionPolicy, Aliases

INHERITED = ("ordering", "backfill", "preemption", "placement", "estimates")
"""The sections that are inherited, by their names in the API; aliases are as well."""


def inherited(
    written: Mapping[str, AdmissionPolicy],
) -> tuple[Mapping[str, AdmissionPolicy], Mapping[str, str]]:
    """Return the policies in force with what they inherit, and of the others a sentence that says why not."""
    in_force: dict[str, AdmissionPolicy] = {}
    faults: dict[str, str] = {}
    for name, policy in written.items():
        chain = [policy]
        while (base := chain[-1].base) is not None:
            if base not in written:
                faults[name] = _missing(chain, base)
                break
            if written[base] in chain:
                names = " -> ".join([*(one.name for one in chain), base])
                faults[name] = f"spec.base leads in a circle: {names}; take one of them out"
                break
            chain.append(written[base])
        else:
            in_force[name] = _merged(chain)
    return in_force, faults


def _missing(chain: list[AdmissionPolicy], base: str) -> str:
    of = f" of its base {chain[-1].name}" if len(chain) > 1 else ""
    return f"spec.base{of} is {base!r}, but no valid AdmissionPolicy has this name; create or correct it"


def _merged(chain: list[AdmissionPolicy]) -> AdmissionPolicy:
    """Return the first policy with each section of the nearest one that has it."""
    policy, *bases = chain
    if not bases:
        return policy
    sections: dict[str, Any] = {
        name: next((found for one in chain if (found := getattr(one, name)) is not None), None)
        for name in INHERITED
    }
    reads_aliases = any(one.reads_aliases for one in chain)
    return replace(policy, aliases=Aliases.ARTICLES if reads_aliases else Aliases.NONE, **sections)
