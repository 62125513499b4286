"""Which namespaces may use a priority class: a label selector in an annotation of the class.

An annotation and not a field, because the kinds are Kueue's and Kubernetes' own: their schemas would prune
the field.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from api.keys import NAMESPACE_SELECTOR
from api.objects.common import WireSelector

_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}


class _Selector(WireSelector, frozen=True, forbid_unknown_fields=True):
    """A selector in which a misspelt field is an error: ignored, it would admit every namespace."""


def class_namespaces(annotations: Mapping[str, str]) -> WireSelector:
    """Return the selector of the namespaces that may use the class: all of them without the annotation.

    Raises ValueError, with a sentence for the administrator, if the annotation is no label selector.
    """
    text = annotations.get(NAMESPACE_SELECTOR)
    if text is None:
        return WireSelector()
    try:
        selector = msgspec.json.decode(text, type=_Selector)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _fault(text, str(error)) from error
    for one in selector.match_expressions or ():
        if one.operator not in _OPERATORS:
            raise _fault(text, f"operator {one.operator!r} is none of {', '.join(_OPERATORS)}")
        if _OPERATORS[one.operator] != bool(one.values):
            raise _fault(text, f"{one.operator} takes {'' if _OPERATORS[one.operator] else 'no '}values")
    return selector


def _fault(text: str, why: str) -> ValueError:
    return ValueError(
        f"metadata.annotations[{NAMESPACE_SELECTOR}] is {text!r}: must be a label selector in JSON such as"
        f' {{"matchLabels": {{"team": "research"}}}} ({why}); no namespace may use the class'
    )
