"""Rules for the labels and annotations with which a Job requests a queue, a time limit or a topology.

A Job is read as a plain object, because the API server checks its own fields; a field that has an unexpected
type is ignored here.
Source: Kueue, pkg/controller/jobframework/validation.go, tas_validation.go and pkg/controller/jobs/job.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import keys
from api.parsing.decimals import whole_number
from api.parsing.faults import FieldError
from api.validation.gates import gate_errors
from api.validation.names import LABEL_KEY_RULE, SUBDOMAIN_RULE, is_dns_subdomain, is_label_key

_STRENGTHS = (keys.REQUIRED_TOPOLOGY, keys.PREFERRED_TOPOLOGY, keys.UNCONSTRAINED_TOPOLOGY)
# Kueue's limit on the number of layers of nested slices.
_MOST_LAYERS = 3
_MOST_SECONDS = 2**31 - 1

_TEMPLATE = "spec.template.metadata.annotations"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    template: Mapping[str, str]
    parallelism: int
    completions: int | None
    is_indexed: bool

    @property
    def is_elastic(self) -> bool:
        return self.annotations.get(keys.ELASTIC_JOB) == "true"


def job_errors(obj: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the faults that prevent a Job from being queued as its labels and annotations request."""
    job = _read(obj)
    yield from _name_errors(job)
    yield from _limit_errors(job)
    yield from _parallelism_errors(job)
    yield from gate_errors(job.annotations)
    yield from _strength_errors(job)
    yield from _slice_errors(job)
    # Reported instead of ignored: the author expects two pod sets to be placed together.
    if keys.POD_SET_GROUP in job.template:
        yield FieldError(
            path=f"{_TEMPLATE}[{keys.POD_SET_GROUP}]",
            value=job.template[keys.POD_SET_GROUP],
            rule="groups two pod sets, but a Job has only one",
        )


def _read(obj: Mapping[str, Any]) -> _Job:
    metadata, spec = _object(obj, "metadata"), _object(obj, "spec")
    template = _object(_object(spec, "template"), "metadata")
    completions = spec.get("completions")
    parallelism = spec.get("parallelism", 1)
    return _Job(
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations"),
        template=_texts(template, "annotations"),
        # The API server rejects a value that is not a number, with its own message.
        parallelism=parallelism if isinstance(parallelism, int) else 1,
        completions=completions if isinstance(completions, int) else None,
        is_indexed=spec.get("completionMode") == "Indexed",
    )


def _object(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = obj.get(key)
    return value if isinstance(value, dict) else {}


def _texts(obj: Mapping[str, Any], key: str) -> Mapping[str, str]:
    return {name: value for name, value in _object(obj, key).items() if isinstance(value, str)}


def _name_errors(job: _Job) -> Iterator[FieldError]:
    """Yield invalid names of other objects.

    Kueue once used annotations for some of them and still reads these.
    """
    for place, texts in (("labels", job.labels), ("annotations", job.annotations)):
        for key in (keys.QUEUE_NAME, keys.PRIORITY_CLASS, keys.PREBUILT_WORKLOAD_NAME):
            if key in texts and not is_dns_subdomain(texts[key]):
                yield FieldError(path=f"metadata.{place}[{key}]", value=texts[key], rule=SUBDOMAIN_RULE)


def _limit_errors(job: _Job) -> Iterator[FieldError]:
    text = job.labels.get(keys.MAX_EXEC_TIME_SECONDS)
    # The label becomes a 32-bit field of the Workload.
    if text is not None and not 1 <= _whole(text) <= _MOST_SECONDS:
        path = f"metadata.labels[{keys.MAX_EXEC_TIME_SECONDS}]"
        yield FieldError(path=path, value=text, rule="must be a whole number of seconds above 0")


def _parallelism_errors(job: _Job) -> Iterator[FieldError]:
    least = job.annotations.get(keys.JOB_MIN_PARALLELISM)
    # A minimum equal to the parallelism would not allow a partial start.
    if least is not None and not 1 <= _whole(least) < job.parallelism:
        path = f"metadata.annotations[{keys.JOB_MIN_PARALLELISM}]"
        rule = f"must be a whole number from 1 to less than spec.parallelism ({job.parallelism})"
        yield FieldError(path=path, value=least, rule=rule)
    if least is not None and job.is_elastic:
        path = f"metadata.annotations[{keys.JOB_MIN_PARALLELISM}]"
        yield FieldError(path=path, value=least, rule="cannot be combined with an elastic job")
    equal = job.annotations.get(keys.JOB_COMPLETIONS_EQUAL_PARALLELISM)
    path = f"metadata.annotations[{keys.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
    if equal not in (None, "true", "false"):
        yield FieldError(path=path, value=equal, rule="must be true or false")
    # Kubernetes allows parallelism and completions to change together only for such a Job.
    if equal == "true" and not (job.is_indexed and job.completions == job.parallelism):
        rule = "needs completionMode Indexed and as many completions as parallelism"
        yield FieldError(path=path, value=equal, rule=rule)


def _strength_errors(job: _Job) -> Iterator[FieldError]:
    given = [key for key in _STRENGTHS if key in job.template]
    # The first key is not reported: there is one fault for each key in excess.
    for key in given[1:]:
        rule = f"{given[0]} is set too, and only one of them may be"
        yield FieldError(path=f"{_TEMPLATE}[{key}]", value=job.template[key], rule=rule)
    for key in given:
        path, value = f"{_TEMPLATE}[{key}]", job.template[key]
        if key == keys.UNCONSTRAINED_TOPOLOGY:
            if value not in ("true", "false"):
                yield FieldError(path=path, value=value, rule="must be true or false")
        elif not is_label_key(value):
            yield FieldError(path=path, value=value, rule=LABEL_KEY_RULE)
        # The pods of an elastic Job come and go, so no domain can be reserved for all of them.
        elif job.is_elastic:
            rule = f"an elastic job may only ask for {keys.UNCONSTRAINED_TOPOLOGY}"
            yield FieldError(path=path, value=value, rule=rule)


def _slice_errors(job: _Job) -> Iterator[FieldError]:
    level, size = job.template.get(keys.SLICE_REQUIRED_TOPOLOGY), job.template.get(keys.SLICE_SIZE)
    layers = job.template.get(keys.SLICE_CONSTRAINTS)
    if layers is not None:
        yield from _layer_errors(job, layers, is_alone=level is None and size is None)
    if level is not None:
        path = f"{_TEMPLATE}[{keys.SLICE_REQUIRED_TOPOLOGY}]"
        if not is_label_key(level):
            yield FieldError(path=path, value=level, rule=LABEL_KEY_RULE)
        if size is None:
            yield FieldError(path=path, value=level, rule=f"needs {keys.SLICE_SIZE}")
    # Level and size are useless alone, so each is reported if the other is missing.
    if size is not None:
        path = f"{_TEMPLATE}[{keys.SLICE_SIZE}]"
        if not 1 <= _whole(size) <= job.parallelism:
            rule = f"must be a whole number from 1 to the number of pods ({job.parallelism})"
            yield FieldError(path=path, value=size, rule=rule)
        if level is None:
            yield FieldError(path=path, value=size, rule=f"needs {keys.SLICE_REQUIRED_TOPOLOGY}")


def _layer_errors(job: _Job, text: str, *, is_alone: bool) -> Iterator[FieldError]:
    path = f"{_TEMPLATE}[{keys.SLICE_CONSTRAINTS}]"
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
        if not 1 <= size <= job.parallelism:
            rule = f"the size of a slice must be from 1 to the number of pods ({job.parallelism})"
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
