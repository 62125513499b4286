"""Rules for the labels and annotations with which a Job requests a queue, a time limit or a topology.

A Job is read as a plain object, because the API server checks its own fields; a field that has an unexpected
type is ignored here.
Source: Kueue, pkg/controller/jobframework/validation.go, and pkg/controller/jobs/job.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import keys
from api.parsing.decimals import whole_number
from api.parsing.dependency_items import MOST_ITEMS, read_items
from api.parsing.faults import FieldError
from api.validation.gates import gate_errors
from api.validation.names import SUBDOMAIN_RULE, is_dns_subdomain
from api.validation.templates import TopologyAnnotations, topology_errors

_MOST_SECONDS = 2**31 - 1


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
    yield from metadata_errors(job.labels, job.annotations)
    yield from _parallelism_errors(job)
    asked = TopologyAnnotations(
        template="spec.template",
        annotations=job.template,
        pods=job.parallelism,
        is_elastic=job.is_elastic,
    )
    yield from topology_errors(asked)
    # Reported instead of ignored: the author expects two pod sets to be placed together.
    if keys.POD_SET_GROUP in job.template:
        yield FieldError(
            path=asked.path_of(keys.POD_SET_GROUP),
            value=job.template[keys.POD_SET_GROUP],
            rule="groups two pod sets, but a Job has only one",
        )


def serving_errors(obj: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the faults of the labels and annotations of an object whose pods serve in a queue."""
    metadata = object_of(obj, "metadata")
    yield from metadata_errors(texts_of(metadata, "labels"), texts_of(metadata, "annotations"))


def _read(obj: Mapping[str, Any]) -> _Job:
    metadata, spec = object_of(obj, "metadata"), object_of(obj, "spec")
    template = object_of(object_of(spec, "template"), "metadata")
    completions = spec.get("completions")
    parallelism = spec.get("parallelism", 1)
    return _Job(
        labels=texts_of(metadata, "labels"),
        annotations=texts_of(metadata, "annotations"),
        template=texts_of(template, "annotations"),
        # The API server rejects a value that is not a number, with its own message.
        parallelism=parallelism if isinstance(parallelism, int) else 1,
        completions=completions if isinstance(completions, int) else None,
        is_indexed=spec.get("completionMode") == "Indexed",
    )


def object_of(obj: Any, key: str) -> Mapping[str, Any]:
    """Return the object that a field holds; an empty one where it, or what should have it, is none."""
    value = obj.get(key) if isinstance(obj, dict) else None
    return value if isinstance(value, dict) else {}


def texts_of(obj: Any, key: str) -> Mapping[str, str]:
    """Return the texts of a field that maps names to texts; values of other types are left out."""
    return {name: value for name, value in object_of(obj, key).items() if isinstance(value, str)}


def metadata_errors(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the faults of the labels and annotations of a Job, or of another object that is queued."""
    yield from _name_errors(labels, annotations)
    yield from _limit_errors(labels)
    yield from gate_errors(annotations)
    if read_items(annotations.get(keys.DEPENDS_ON, "")).has_more:
        yield FieldError(
            path=f"metadata.annotations[{keys.DEPENDS_ON}]",
            value=annotations[keys.DEPENDS_ON],
            rule=f"must have at most {MOST_ITEMS} names and labels",
        )


def _name_errors(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield invalid names of other objects.

    Kueue once used annotations for some of them and still reads these.
    """
    for place, texts in (("labels", labels), ("annotations", annotations)):
        for key in (keys.QUEUE_NAME, keys.PRIORITY_CLASS, keys.PREBUILT_WORKLOAD_NAME):
            if key in texts and not is_dns_subdomain(texts[key]):
                yield FieldError(path=f"metadata.{place}[{key}]", value=texts[key], rule=SUBDOMAIN_RULE)


def _limit_errors(labels: Mapping[str, str]) -> Iterator[FieldError]:
    text = labels.get(keys.MAX_EXEC_TIME_SECONDS)
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


def _whole(text: str) -> int:
    """Return the number that `text` represents in decimal digits, or 0 if it represents none."""
    return whole_number(text) or 0
