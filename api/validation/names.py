"""Rules for names, labels, selectors and taints that several kinds share.

Source: k8s.io/apimachinery, pkg/util/validation; k8s.io/kubernetes, pkg/apis/core/validation (tolerations).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from api.models.common import (
    DNS_SUBDOMAIN_PATTERN,
    LABEL_KEY_PATTERN,
    LabelSelector,
    Taint,
    Toleration,
)
from api.parsing.faults import ABSENT, FieldError

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")

_MOST_NAME_CHARACTERS = 253
_MOST_LABEL_CHARACTERS = 63
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")

_DNS_SUBDOMAIN = re.compile(DNS_SUBDOMAIN_PATTERN)
_LABEL_KEY = re.compile(LABEL_KEY_PATTERN)

SUBDOMAIN_RULE = "must be a DNS subdomain: lower-case letters, digits, '-' and '.', at most 253"
LABEL_KEY_RULE = (
    "must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"
)
LABEL_VALUE_RULE = "must be a label value: at most 63 letters, digits, '-', '_' or '.'"


def is_dns_subdomain(text: str) -> bool:
    """Return whether `text` is a valid name of an object."""
    return len(text) <= _MOST_NAME_CHARACTERS and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Return whether `text` is a valid key of a label, an annotation, a taint or a resource."""
    # Split at the last slash, so that an additional slash is part of the prefix, where it is invalid.
    prefix, slash, name = text.rpartition("/")
    return (
        len(name) <= _MOST_LABEL_CHARACTERS
        and (not slash or is_dns_subdomain(prefix))
        and _LABEL_KEY.fullmatch(text) is not None
    )


def is_label_value(text: str) -> bool:
    """Return whether `text` is a valid label value."""
    return len(text) <= _MOST_LABEL_CHARACTERS and _LABEL_VALUE.fullmatch(text) is not None


def duplicates(values: Iterable[str]) -> list[str]:
    """Return the values that occur more than once, each of them once."""
    return [value for value, count in Counter(values).items() if count > 1]


def label_errors(path: str, labels: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Yield a fault for each invalid key or value of `labels`."""
    for key, value in (labels or {}).items():
        if not is_label_key(key):
            yield FieldError(path=path, value=key, rule=LABEL_KEY_RULE)
        if not is_label_value(value):
            yield FieldError(path=f"{path}[{key}]", value=value, rule=LABEL_VALUE_RULE)


def annotation_errors(path: str, annotations: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Yield a fault for each invalid key of `annotations`; upper-case letters in a prefix are allowed."""
    for key in annotations or {}:
        # The API server also converts annotation keys to lower case before it checks them.
        if not is_label_key(key.lower()):
            yield FieldError(path=path, value=key, rule=LABEL_KEY_RULE)


def selector_errors(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    """Yield the faults of a label selector; nothing for None."""
    if selector is None:
        return
    # The API server checks labels of objects, but not the values of a selector: one that can never
    # match is accepted there.
    yield from label_errors(f"{path}.matchLabels", selector.match_labels)
    for index, requirement in enumerate(selector.match_expressions or ()):
        place = f"{path}.matchExpressions[{index}]"
        if not is_label_key(requirement.key):
            yield FieldError(path=f"{place}.key", value=requirement.key, rule=LABEL_KEY_RULE)
        yield from _operator_errors(place, requirement.operator, requirement.values)


def _operator_errors(path: str, operator: str, values: list[str] | None) -> Iterator[FieldError]:
    if operator in ("In", "NotIn"):
        if not values:
            yield FieldError(
                path=f"{path}.values", value=values or ABSENT, rule=f"{operator} needs at least one value"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield FieldError(path=f"{path}.values", value=values, rule=f"{operator} takes no values")
    else:
        yield FieldError(
            path=f"{path}.operator", value=operator, rule="must be In, NotIn, Exists or DoesNotExist"
        )


def taint_errors(path: str, taints: list[Taint] | None) -> Iterator[FieldError]:
    """Yield the faults of taints: invalid keys, values and effects, and duplicates of a key and effect."""
    for index, taint in enumerate(taints or ()):
        place = f"{path}[{index}]"
        if not is_label_key(taint.key):
            yield FieldError(path=f"{place}.key", value=taint.key, rule=LABEL_KEY_RULE)
        if not is_label_value(taint.value or ""):
            yield FieldError(path=f"{place}.value", value=taint.value, rule=LABEL_VALUE_RULE)
        if taint.effect not in EFFECTS:
            yield FieldError(
                path=f"{place}.effect",
                value=taint.effect,
                rule="must be NoSchedule, PreferNoSchedule or NoExecute",
            )
    for name in duplicates(f"{taint.key}:{taint.effect}" for taint in taints or ()):
        yield FieldError(path=path, value=name, rule="taints must differ in key or effect")


def toleration_errors(path: str, tolerations: list[Toleration] | None) -> Iterator[FieldError]:
    """Yield the faults of tolerations."""
    for index, toleration in enumerate(tolerations or ()):
        yield from _toleration(f"{path}[{index}]", toleration)


def _toleration(path: str, toleration: Toleration) -> Iterator[FieldError]:
    # Equal is the API server's default if the field is empty.
    operator = toleration.operator or "Equal"
    if toleration.key and not is_label_key(toleration.key):
        yield FieldError(path=f"{path}.key", value=toleration.key, rule=LABEL_KEY_RULE)
    if operator not in _OPERATORS:
        yield FieldError(path=f"{path}.operator", value=operator, rule="must be Equal or Exists")
    # Without a key the toleration matches every taint, so it cannot require a value.
    if not toleration.key and operator != "Exists":
        yield FieldError(path=f"{path}.operator", value=operator, rule="must be Exists where there is no key")
    if operator == "Exists" and toleration.value:
        yield FieldError(path=f"{path}.value", value=toleration.value, rule="operator Exists takes no value")
    if operator == "Equal" and not is_label_value(toleration.value or ""):
        yield FieldError(path=f"{path}.value", value=toleration.value, rule=LABEL_VALUE_RULE)
    yield from _toleration_effect(path, toleration)


def _toleration_effect(path: str, toleration: Toleration) -> Iterator[FieldError]:
    if toleration.effect and toleration.effect not in EFFECTS:
        yield FieldError(
            path=f"{path}.effect",
            value=toleration.effect,
            rule="must be NoSchedule, PreferNoSchedule or NoExecute",
        )
    # Only NoExecute evicts running pods, so only there does a time limit make sense.
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield FieldError(
            path=f"{path}.effect",
            value=toleration.effect or ABSENT,
            rule="must be NoExecute where there are tolerationSeconds",
        )
