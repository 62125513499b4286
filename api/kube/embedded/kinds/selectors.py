"""Label and field selectors: parsing of the text in a URL into a predicate on objects.

Source: k8s.io/apimachinery, pkg/labels/selector.go and pkg/fields/selector.go.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from api.kube.embedded.apply.errors import bad_request
from api.kube.embedded.apply.schema import Json, JsonObject
from api.objects.common import WireSelector
from api.selectors import matches_selector

Predicate = Callable[[JsonObject], bool]
_LabelTest = Callable[[Mapping[str, str]], bool]

_REQUIREMENT: Final = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<gone>[^\s=!,()<>]+)"
    r"|(?P<key>[^\s=!,()<>]+)\s*(?:(?P<sign>==|=|!=|>|<)\s*(?P<value>[^\s=!,()<>]*)"
    r"|\s(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)


def label_selector(text: str) -> Predicate:
    """Return the predicate of a label selector such as `app=x,tier in (a,b),!old`.

    An empty text selects every object. Raises ApiError (400) if the text is malformed.
    """
    tests = [_label_test(part) for part in _split(text)]
    return lambda item: _all(tests, item["metadata"].get("labels") or {})


def _all(tests: list[_LabelTest], labels: Mapping[str, str]) -> bool:
    return all(test(labels) for test in tests)


def _split(text: str) -> Iterator[str]:
    """Yield the requirements, which are separated by commas outside of brackets."""
    depth = start = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


def _label_test(text: str) -> _LabelTest:
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise bad_request(f"unable to parse requirement: {text.strip()!r} is no label selector")
    key, value = match["key"], match["value"]
    if match["absent"]:
        gone = match["gone"]
        return lambda labels: gone not in labels
    if match["word"]:
        values = {each.strip() for each in match["values"].split(",")}
        return _membership(key, values, wanted=match["word"] == "in")
    match match["sign"]:
        case None:
            return lambda labels: key in labels
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case "!=":
            return lambda labels: labels.get(key) != value
        case sign:
            return _comparison(key, value, greater=sign == ">")


def _membership(key: str, values: Collection[str], *, wanted: bool) -> _LabelTest:
    # `notin` also selects objects without the label.
    return lambda labels: (labels.get(key) in values) == wanted


def _comparison(key: str, value: str, *, greater: bool) -> _LabelTest:
    try:
        limit = int(value)
    except ValueError:
        raise bad_request(f"unable to parse requirement: {value!r} must be an integer") from None

    def test(labels: Mapping[str, str]) -> bool:
        try:
            number = int(labels[key])
        except (KeyError, ValueError):
            return False
        return number > limit if greater else number < limit

    return test


def matches_labels(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector matches these labels. None matches nothing, an empty one everything."""
    if selector is None:
        return False
    return matches_selector(msgspec.convert(selector, WireSelector), labels)


def field_selector(text: str, supported: Collection[str], aliases: Mapping[str, str]) -> Predicate:
    """Return the predicate of a field selector such as `status.phase!=Failed,spec.nodeName=n1`.

    `supported` are the selectable fields of the kind, in addition to name and namespace; `aliases` maps
    fields whose name is not a path to their actual path. Raises ApiError (400) for any other field.
    """
    tests: list[Predicate] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)\s*(.*?)\s*", part)
        if match is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        name, sign, value = match.groups()
        if name not in supported and name not in ("metadata.name", "metadata.namespace"):
            raise bad_request(f"field label not supported: {name}")
        tests.append(_field_test(aliases.get(name, name).split("."), value, wanted=sign != "!="))
    return lambda item: all(test(item) for test in tests)


def _field_test(path: list[str], value: str, *, wanted: bool) -> Predicate:
    def test(item: JsonObject) -> bool:
        found: Json = item
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return (_as_text(found) == value) == wanted

    return test


def _as_text(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
