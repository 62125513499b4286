"""The rules for names, labels and other metadata, which are the same for every kind.

Source: k8s.io/apimachinery, pkg/util/validation and pkg/api/validation/objectmeta.go.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from api.kube.embedded.apply.errors import FieldError, forbidden_field, invalid_value, required
from api.kube.embedded.apply.schema import JsonObject

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = rf"({_QUALIFIED})?"

_MAX_SUBDOMAIN = 253
_MAX_LABEL = 63
# Limit for the sum of all annotations of one object, in bytes.
_MAX_ANNOTATIONS = 256 * 1024

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    f"for validation is '{_LABEL_VALUE}')"
)


def label_fault(text: str) -> str | None:
    """Return why `text` is not a DNS label (RFC 1123, at most 63 characters), or None if it is one."""
    if len(text) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    return None if re.fullmatch(_LABEL, text) else _LABEL_RULE


def subdomain_fault(text: str) -> str | None:
    """Return why `text` is not a DNS subdomain (RFC 1123, at most 253 characters), or None if it is one."""
    if len(text) > _MAX_SUBDOMAIN:
        return f"must be no more than {_MAX_SUBDOMAIN} characters"
    return None if re.fullmatch(_SUBDOMAIN, text) else _SUBDOMAIN_RULE


def segment_fault(text: str) -> str | None:
    """Return why `text` cannot be a part of a URL path, or None. RBAC kinds have only this rule."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    bad = next((sign for sign in "/%" if sign in text), None)
    return f"may not contain '{bad}'" if bad else None


def qualified_fault(text: str) -> str | None:
    """Return why `text` is not a qualified name such as example.com/key, or None if it is one."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (fault := subdomain_fault(prefix)):
        return f"prefix part {fault}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _MAX_LABEL:
        return f"name part must be no more than {_MAX_LABEL} characters"
    return None if re.fullmatch(_QUALIFIED, name) else _QUALIFIED_RULE


def label_value_fault(text: str) -> str | None:
    """Return why `text` cannot be the value of a label, or None if it can."""
    if len(text) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    return None if re.fullmatch(_LABEL_VALUE, text) else _VALUE_RULE


def labels_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the faults of a map of labels."""
    for key, value in labels.items():
        if fault := qualified_fault(key):
            yield invalid_value(path, key, fault)
        if fault := label_value_fault(value):
            yield invalid_value(path, value, fault)


def metadata_faults(metadata: JsonObject, name_fault: str | None) -> Iterator[FieldError]:
    """Yield the faults of an object's metadata.

    `name_fault` is the fault of its name by the rules of its kind.
    """
    if name_fault:
        yield invalid_value("metadata.name", metadata["name"], name_fault)
    yield from labels_faults(metadata.get("labels") or {}, "metadata.labels")
    yield from _annotation_faults(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        if fault := qualified_fault(finalizer):
            yield invalid_value("metadata.finalizers", finalizer, fault)
    for index, reference in enumerate(metadata.get("ownerReferences") or ()):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(key):
                yield required(f"metadata.ownerReferences[{index}].{key}", "must not be empty")


def _annotation_faults(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    for key in annotations:
        if fault := qualified_fault(key.lower()):
            yield invalid_value("metadata.annotations", key, fault)
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _MAX_ANNOTATIONS:
        detail = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
        yield FieldError("metadata.annotations", "FieldValueTooLong", detail)


def metadata_update_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the changes of metadata that are not allowed in any update."""
    if old.get("deletionTimestamp"):
        added = [each for each in new.get("finalizers") or () if each not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers "
            yield forbidden_field("metadata.finalizers", f"{why}[]string{{{listed}}}")
