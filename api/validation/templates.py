"""Rules for the annotations with which a pod template requests a topology.

Source: Kueue, pkg/controller/jobframework/tas_validation.go.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api import keys
from api.parsing.decimals import whole_number
from api.parsing.faults import FieldError
from api.validation.names import LABEL_KEY_RULE, is_label_key

_STRENGTHS = (keys.REQUIRED_TOPOLOGY, keys.PREFERRED_TOPOLOGY, keys.UNCONSTRAINED_TOPOLOGY)
# Kueue's limit on the number of layers of nested slices.
_MOST_LAYERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyAnnotations:
    """The annotations of a pod template at the path `template`, which is for `pods` pods."""

    template: str
    annotations: Mapping[str, str]
    pods: int
    is_elastic: bool = False

    def path_of(self, key: str) -> str:
        """Return the path of an annotation."""
        return f"{self.template}.metadata.annotations[{key}]"


def topology_errors(asked: TopologyAnnotations) -> Iterator[FieldError]:
    """Yield the faults of what a template asks of the topology."""
    yield from _strength_errors(asked)
    yield from _slice_errors(asked)


def _strength_errors(asked: TopologyAnnotations) -> Iterator[FieldError]:
    given = [key for key in _STRENGTHS if key in asked.annotations]
    # The first key is not reported: there is one fault for each key in excess.
    for key in given[1:]:
        rule = f"{given[0]} is set too, and only one of them may be"
        yield FieldError(path=asked.path_of(key), value=asked.annotations[key], rule=rule)
    for key in given:
        path, value = asked.path_of(key), asked.annotations[key]
        if key == keys.UNCONSTRAINED_TOPOLOGY:
            if value not in ("true", "false"):
                yield FieldError(path=path, value=value, rule="must be true or false")
        elif not is_label_key(value):
            yield FieldError(path=path, value=value, rule=LABEL_KEY_RULE)
        # The pods of an elastic Job come and go, so no domain can be reserved for all of them.
        elif asked.is_elastic:
            rule = f"an elastic job may only ask for {keys.UNCONSTRAINED_TOPOLOGY}"
            yield FieldError(path=path, value=value, rule=rule)


def _slice_errors(asked: TopologyAnnotations) -> Iterator[FieldError]:
    level, size = asked.annotations.get(keys.SLICE_REQUIRED_TOPOLOGY), asked.annotations.get(keys.SLICE_SIZE)
    layers = asked.annotations.get(keys.SLICE_CONSTRAINTS)
    if layers is not None:
        yield from _layer_errors(asked, layers, is_alone=level is None and size is None)
    if level is not None:
        path = asked.path_of(keys.SLICE_REQUIRED_TOPOLOGY)
        if not is_label_key(level):
            yield FieldError(path=path, value=level, rule=LABEL_KEY_RULE)
        if size is None:
            yield FieldError(path=path, value=level, rule=f"needs {keys.SLICE_SIZE}")
    # Level and size are useless alone, so each is reported if the other is missing.
    if size is not None:
        path = asked.path_of(keys.SLICE_SIZE)
        if not 1 <= _whole(size) <= asked.pods:
            rule = f"must be a whole number from 1 to the number of pods ({asked.pods})"
            yield FieldError(path=path, value=size, rule=rule)
        if level is None:
            yield FieldError(path=path, value=size, rule=f"needs {keys.SLICE_REQUIRED_TOPOLOGY}")


def _layer_errors(asked: TopologyAnnotations, text: str, *, is_alone: bool) -> Iterator[FieldError]:
    path = asked.path_of(keys.SLICE_CONSTRAINTS)
    if not is_alone:
        rule = f"excludes {keys.SLICE_REQUIRED_TOPOLOGY} and {keys.SLICE_SIZE}"
        yield FieldError(path=path, value=text, rule=rule)
    layers = _layers(text)
    if layers is None:
        rule = (
            f'must be a JSON list of 1 to {_MOST_LAYERS} layers, such as [{{"topology": "rack", "size": 8}}]'
        )
        yield FieldError(path=path, value=text, rule=rule)
    for topology, size in layers or ():
        if not is_label_key(topology):
            yield FieldError(path=path, value=topology, rule=LABEL_KEY_RULE)
        if not 1 <= size <= asked.pods:
            rule = f"the size of a slice must be from 1 to the number of pods ({asked.pods})"
            yield FieldError(path=path, value=size, rule=rule)


def _layers(text: str) -> list[tuple[str, int]] | None:
    """Return (topology, size) of each layer, or None if the text is not a list of 1 to 3 layers."""
    try:
        layers = json.loads(text)
        found = [(layer["topology"], layer["size"]) for layer in layers]
    # An annotation is large enough for lists nested deeper than the JSON parser can follow.
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # The type must be exactly int, because isinstance would accept JSON true as the number 1.
    is_read = all(isinstance(topology, str) and type(size) is int for topology, size in found)
    return found if is_read and 1 <= len(found) <= _MOST_LAYERS else None


def _whole(text: str) -> int:
    """Return the number that `text` represents in decimal digits, or 0 if it represents none."""
    return whole_number(text) or 0
