"""The role of a pod in its group: a short hash of its scheduling requirements, digit for digit as Kueue's.

The pod sets of a group are named by it, so a group that Kueue has admitted keeps its pod sets, and a group of
Berth's keeps them in Kueue. Kueue hashes the JSON that Go makes of a pod spec. So fields have the order of
Go's types, and keys of maps are sorted. Fields that are absent are null at the top and left out below it.
Source: Kueue, pkg/util/pod (GenerateRoleHash, SpecShape); Kubernetes, core/v1 types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from api import keys
from api.parsing.quantities import QuantityError, canonical

_LENGTH = 8


class _Fields(dict[str, "_Kind"]):
    """The fields of one of Go's structs, in order, each with the kind of its value."""


# None: a plain value, or a list of such. A tuple: a list of structs.
_Kind = _Fields | tuple[_Fields] | None

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIREMENT = _Fields(key=None, operator=None, values=None)
_LABEL_SELECTOR = _Fields(matchLabels=None, matchExpressions=(_REQUIREMENT,))
_NODE_TERM = _Fields(matchExpressions=(_REQUIREMENT,), matchFields=(_REQUIREMENT,))
_NODE_AFFINITY = _Fields(
    {
        _REQUIRED: _Fields(nodeSelectorTerms=(_NODE_TERM,)),
        _PREFERRED: (_Fields(weight=None, preference=_NODE_TERM),),
    }
)
_POD_TERM = _Fields(
    labelSelector=_LABEL_SELECTOR,
    namespaces=None,
    topologyKey=None,
    namespaceSelector=_LABEL_SELECTOR,
    matchLabelKeys=None,
    mismatchLabelKeys=None,
)
_POD_AFFINITY = _Fields(
    {_REQUIRED: (_POD_TERM,), _PREFERRED: (_Fields(weight=None, podAffinityTerm=_POD_TERM),)}
)
# The fields of a pod spec that make a role, sorted as the keys of a map are in Go.
_SHAPE: Mapping[str, _Kind] = {
    "affinity": _Fields(
        nodeAffinity=_NODE_AFFINITY, podAffinity=_POD_AFFINITY, podAntiAffinity=_POD_AFFINITY
    ),
    "containers": None,
    "initContainers": None,
    "nodeSelector": None,
    "overhead": None,
    "priority": None,
    "resourceClaims": (_Fields(name=None, resourceClaimName=None, resourceClaimTemplateName=None),),
    "resources": None,
    "runtimeClassName": None,
    "tolerations": (_Fields(key=None, operator=None, value=None, effect=None, tolerationSeconds=None),),
    "topologySpreadConstraints": (
        _Fields(
            maxSkew=None,
            topologyKey=None,
            whenUnsatisfiable=None,
            labelSelector=_LABEL_SELECTOR,
            minDomains=None,
            nodeAffinityPolicy=None,
            nodeTaintsPolicy=None,
            matchLabelKeys=None,
        ),
    ),
}
_PORTS: _Kind = (_Fields(name=None, hostPort=None, containerPort=None, protocol=None, hostIP=None),)
# Go escapes these in the texts of JSON, as they have a meaning in HTML or JavaScript.
_ESCAPED = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def role_of(body: Mapping[str, Any]) -> str:
    """Return the role of a pod's object, a short hash of its scheduling requirements.

    The annotation that the webhook wrote takes precedence over the spec.
    """
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    # A start changes the spec (node selector, tolerations) after the webhook has computed the hash.
    if said := annotations.get(keys.ROLE_HASH):
        return str(said)
    return role_hash(body.get("spec") or {})


def role_hash(spec: Mapping[str, Any]) -> str:
    """Return the hash of the scheduling requirements of a pod spec as the API server stores it."""
    shape = {name: _field(spec, name, kind) for name, kind in _SHAPE.items()}
    # Only where it is set: pods without it have the roles that they had before Kubernetes knew the field.
    if not spec.get("resources"):
        del shape["resources"]
    text = json.dumps({"spec": shape}, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def _field(spec: Mapping[str, Any], name: str, kind: _Kind) -> Any:
    found = spec.get(name)
    if name in ("containers", "initContainers"):
        return [_container(one) for one in found or ()] or None
    if name == "resources":
        return _amounts((found or {}).get("requests"))
    if name == "overhead":
        return _amounts(found)
    # A list or map without an entry is absent in Go. A priority of 0 is not, nor an affinity without fields.
    is_absent = found is None or found == [] or (kind is None and found == {})
    return None if is_absent else _ordered(found, kind)


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a container makes a role: a new image, say, does not."""
    resources = container.get("resources") or {}
    ports = container.get("ports") or None
    return {
        "ports": ports and _ordered(ports, _PORTS),
        "resources": {"requests": _amounts(resources.get("requests"))},
    }


def _ordered(value: Any, kind: _Kind) -> Any:
    """Return a value with the fields of structs in Go's order and the keys of maps sorted."""
    if isinstance(kind, tuple):
        return [_ordered(one, kind[0]) for one in value] if isinstance(value, Sequence) else value
    if isinstance(value, Mapping) and kind is not None:
        return {
            name: _ordered(value[name], inner)
            for name, inner in kind.items()
            if _is_written(name, value.get(name))
        }
    return dict(sorted(value.items())) if isinstance(value, Mapping) else value


def _is_written(name: str, value: Any) -> bool:
    """Return whether Go writes a field of a struct. It leaves out empty texts, lists and maps."""
    if name == "matchLabels" and value == {}:
        return False
    return value is not None and value not in ("", []) and not (name == "hostPort" and value == 0)


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the quantities by name, in the form in which the API server prints them; None without any."""
    return {name: _quantity(text) for name, text in sorted(amounts.items())} if amounts else None


def _quantity(text: Any) -> str:
    try:
        return canonical(text)
    except QuantityError:
        # The API server stores none that cannot be read; the faults of others are reported elsewhere.
        return str(text)
