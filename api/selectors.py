"""Matching rules of Kubernetes: label selectors, node affinity, taints and tolerations.

The rules are Kubernetes' own, implemented for the wire structs. An operator that Kubernetes does not define
matches nothing. Source: k8s.io/apimachinery labels.Selector; k8s.io/component-helpers nodeaffinity, taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api.objects.common import WireSelector, WireSelectorRequirement, WireTaint, WireToleration
from api.objects.templates import WireAffinity, WireNodeSelectorTerm, WirePodSpec

_BINDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_NO_LABELS: Mapping[str, str] = {}


def matches_selector(selector: WireSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether the selector matches `labels`.

    None matches nothing, an empty selector matches everything.
    """
    if selector is None:
        return False
    # As a rule a ClusterQueue selects every namespace, and this is asked for each head of each cycle.
    if not (selector.match_labels or selector.match_expressions):
        return True
    # Both parts must match: matchLabels are requirements too.
    labels = labels or _NO_LABELS
    wanted = selector.match_labels or _NO_LABELS
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        matches_requirement(requirement, labels) for requirement in selector.match_expressions or ()
    )


def matches_requirement(requirement: WireSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether `labels` satisfy one requirement. NotIn and DoesNotExist hold for an absent key."""
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            # Gt and Lt take exactly one value; with more, the requirement never holds.
            return _compares(requirement.operator, value, values[0] if len(values) == 1 else None)
        case _:
            return False


def selector_problem(selector: WireSelector | None) -> str | None:
    """Return what is wrong with a label selector, or None if it is valid."""
    for requirement in selector.match_expressions or () if selector else ():
        if requirement.operator in ("In", "NotIn"):
            # With an empty list, In matches nothing and NotIn everything; neither is intended,
            # and Kubernetes rejects both.
            if not requirement.values:
                return f"matchExpressions for {requirement.key!r}: {requirement.operator} needs values"
        elif requirement.operator not in ("Exists", "DoesNotExist"):
            return (
                f"matchExpressions for {requirement.key!r}: operator {requirement.operator!r} is none of "
                "In, NotIn, Exists, DoesNotExist"
            )
    return None


def tolerates(toleration: WireToleration, taint: WireTaint) -> bool:
    """Return whether one toleration tolerates the taint.

    An empty effect tolerates all effects; an empty key, which needs operator Exists, tolerates all keys.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            # Equal without a key would tolerate every taint with an empty value; Kubernetes rejects it, so
            # it tolerates none here.
            return toleration.value == taint.value and bool(toleration.key)
        case "Gt" | "Lt":
            return _compares(toleration.operator, taint.value, toleration.value)
        case _:
            return False


def find_untolerated(taints: Iterable[WireTaint], tolerations: Iterable[WireToleration]) -> WireTaint | None:
    """Return the first NoSchedule or NoExecute taint that is not tolerated, or None if there is none."""
    # Copied to a tuple, because it is iterated once per taint.
    held = tuple(tolerations)
    for taint in taints:
        if taint.effect in _BINDING_EFFECTS and not any(tolerates(toleration, taint) for toleration in held):
            return taint
    return None


def taint_text(taint: WireTaint) -> str:
    """Return a taint as kubectl prints it: key=value:effect."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def matches_flavor(spec: WirePodSpec, flavor_labels: Mapping[str, str]) -> bool:
    """Return whether the pods may run on nodes with these labels, as far as a flavor's labels decide it.

    Only keys that the flavor defines are considered, because its nodes may have any other labels. A required
    affinity term without such a key can hold on some node, so it matches, and with it the whole affinity.
    Source: Kueue, pkg/scheduler/flavorassigner/flavorassigner.go, flavorSelector.
    """
    for key, value in (spec.node_selector or _NO_LABELS).items():
        # A key that the flavor does not define may be present on any of its nodes.
        if key in flavor_labels and flavor_labels[key] != value:
            return False
    terms = _required_terms(spec.affinity)
    return not terms or any(_term_matches(term, flavor_labels) for term in terms)


def matches_node(
    node_selector: Mapping[str, str] | None,
    affinity: WireAffinity | None,
    *,
    name: str,
    labels: Mapping[str, str],
) -> tuple[bool, bool]:
    """Return whether a node matches the node selector, and whether it matches the required affinity.

    Terms are alternatives; a term without any expression never matches.
    """
    terms = _required_terms(affinity)
    has_selected = all(labels.get(key) == value for key, value in (node_selector or _NO_LABELS).items())
    return has_selected, not terms or any(_term_holds(term, name, labels) for term in terms)


def keys_of_affinity(affinity: WireAffinity | None) -> tuple[frozenset[str], bool]:
    """Return the label keys that the required affinity uses, and whether it also uses the names of nodes."""
    terms = _required_terms(affinity)
    keys = frozenset(one.key for term in terms for one in term.match_expressions or ())
    return keys, any(term.match_fields for term in terms)


def preference_of(affinity: WireAffinity, *, name: str, labels: Mapping[str, str]) -> int:
    """Return the sum of the weights of the preferred terms that a node meets; 0 without such terms."""
    nodes = affinity.node_affinity
    terms = nodes.preferred_during_scheduling_ignored_during_execution if nodes is not None else ()
    return sum(
        term.weight
        for term in terms or ()
        if term.preference is not None and _term_holds(term.preference, name, labels)
    )


def _term_holds(term: WireNodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    # As in kube-scheduler, an empty term selects no node; it is not a wildcard.
    if not expressions and not fields:
        return False
    return all(matches_requirement(one, labels) for one in expressions) and all(
        matches_requirement(one, {"metadata.name": name}) for one in fields
    )


def _required_terms(affinity: WireAffinity | None) -> tuple[WireNodeSelectorTerm, ...]:
    if affinity is None or affinity.node_affinity is None:
        return ()
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return (required.node_selector_terms or ()) if required is not None else ()


def _term_matches(term: WireNodeSelectorTerm, flavor_labels: Mapping[str, str]) -> bool:
    return all(
        matches_requirement(requirement, flavor_labels)
        for requirement in term.match_expressions or ()
        if requirement.key in flavor_labels
    )


# Kubernetes compares integers only; any other value never matches.
def _compares(operator: str, value: str | None, bound: str | None) -> bool:
    try:
        left, right = int(value or ""), int(bound or "")
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
