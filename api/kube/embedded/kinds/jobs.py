"""Jobs: the generated selector, validation, and the changes that are allowed while a Job is suspended.

The last part is essential for queueing: the pod template is immutable except for its scheduling directives,
and these can change only while the Job is suspended and none of its pods runs.

Source: k8s.io/kubernetes, pkg/registry/batch/job and pkg/apis/batch/validation.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from api.kube.embedded.apply.errors import FieldError, invalid_value, required, unsupported
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.job_status import has_condition, job_status_faults
from api.kube.embedded.kinds.kinds import Strategy, World
from api.kube.embedded.kinds.names import label_fault
from api.kube.embedded.kinds.pod_spec import pod_spec_faults, take, take_node_affinity
from api.kube.embedded.kinds.selectors import matches_labels

JOB_NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")
JOB_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_SELECTOR_LABEL = "batch.kubernetes.io/controller-uid"

# Pods of an Indexed Job are tracked individually, which limits their number.
_MAX_INDEXED_PARALLELISM = 100_000
_COUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_IMMUTABLE: Final = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_DIRECTIVES: Final = ("nodeSelector", "tolerations", "schedulingGates")


class JobStrategy(Strategy):
    """The rules for Jobs."""

    counts_generations = True
    # For compatibility with clients older than garbage collection, a plain delete orphans the pods.
    default_propagation = "Orphan"
    reset_by_main = ("status",)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Generate selector and labels, and reset the status."""
        del world
        item["status"] = dict(self.blank_status)
        if not item["spec"].get("manualSelector"):
            _generate_selector(item)

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of the Job."""
        spec = item["spec"]
        if not spec.get("manualSelector") and "selector" in spec:
            yield from _label_faults(item)
        yield from job_spec_faults(spec, "spec")
        labels = spec["template"]["metadata"].get("labels", {})
        if "selector" not in spec:
            yield required("spec.selector")
        if not matches_labels(spec.get("selector"), labels):
            why = "`selector` does not match template `labels`"
            yield invalid_value("spec.template.metadata.labels", labels, why)
        if spec.get("completionMode") == "Indexed" and spec.get("completions"):
            name = item["metadata"]["name"]
            host = f"{name}-{spec['completions'] - 1}"
            if label_fault(host):
                why = f"will not able to create pod with invalid DNS label: {host}"
                yield invalid_value("metadata.name", name, why)

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the changes that the Job does not allow in its current state."""
        spec, before = new["spec"], old["spec"]
        yield from _completions_faults(spec, before)
        for key in _IMMUTABLE:
            if spec.get(key) != before.get(key):
                yield invalid_value(f"spec.{key}", spec.get(key), "field is immutable")
        yield from _template_faults(spec["template"], old)

    def status_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the faults of a status, given the previous one."""
        return job_status_faults(new, old)


def _generate_selector(job: JsonObject) -> None:
    metadata, spec = job["metadata"], job["spec"]
    template = spec["template"]["metadata"]
    labels = {
        **dict.fromkeys(JOB_NAME_LABELS, metadata["name"]),
        **dict.fromkeys(JOB_UID_LABELS, metadata["uid"]),
    }
    # In place, because a Job without labels of its own shares those of its template.
    own = template.setdefault("labels", {})
    own.update({key: value for key, value in labels.items() if key not in own})
    metadata["labels"] = metadata.get("labels") or own
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {_SELECTOR_LABEL: metadata["uid"], **selector.get("matchLabels", {})}


def _label_faults(job: JsonObject) -> Iterator[FieldError]:
    metadata = job["metadata"]
    labels = job["spec"]["template"]["metadata"].get("labels", {})
    expected = {
        **dict.fromkeys(JOB_UID_LABELS, metadata["uid"]),
        **dict.fromkeys(JOB_NAME_LABELS, metadata["name"]),
    }
    for key, value in expected.items():
        if key not in labels:
            yield required(f"spec.template.metadata.labels[{key}]", f"must be '{value}'")
        elif labels[key] != value:
            yield invalid_value(f"spec.template.metadata.labels[{key}]", labels[key], f"must be '{value}'")
    if not matches_labels(job["spec"]["selector"], expected):
        yield invalid_value("spec.selector", job["spec"]["selector"], "`selector` not auto-generated")


def job_spec_faults(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the faults of the spec of a Job or of a CronJob's template."""
    for key in _COUNTS:
        if spec.get(key, 0) < 0:
            yield invalid_value(f"{path}.{key}", spec[key], "must be greater than or equal to 0")
    mode = spec.get("completionMode")
    if mode not in ("Indexed", "NonIndexed"):
        yield unsupported(f"{path}.completionMode", mode, ("Indexed", "NonIndexed"))
    elif mode == "Indexed":
        yield from _indexed_faults(spec, path)
    else:
        for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if key in spec:
                yield invalid_value(f"{path}.{key}", spec[key], "requires indexed completion mode")
    yield from pod_spec_faults(spec["template"]["spec"], f"{path}.template.spec")
    if spec["template"]["spec"].get("restartPolicy") == "Always":
        here = f"{path}.template.spec.restartPolicy"
        yield required(here, 'valid values: "OnFailure", "Never"')


def _indexed_faults(spec: JsonObject, path: str) -> Iterator[FieldError]:
    if "completions" not in spec:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if spec.get("parallelism", 0) > _MAX_INDEXED_PARALLELISM:
        why = f"must be less than or equal to {_MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        yield invalid_value(f"{path}.parallelism", spec["parallelism"], why)


def _completions_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if new.get("completions") == old.get("completions"):
        return
    if new.get("completionMode") == "Indexed":
        # In an elastic Job both numbers change together. A missing number is already reported elsewhere.
        if "completions" not in new or new["completions"] == new.get("parallelism"):
            return
        why = "can only be modified in tandem with spec.parallelism"
        yield invalid_value("spec.completions", new.get("completions"), why)
        return
    yield invalid_value("spec.completions", new.get("completions"), "field is immutable")


def _template_faults(template: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    before = old["spec"]["template"]
    if template == before:
        return
    if not old["spec"].get("suspend"):
        yield invalid_value("spec.template", template, "field is immutable")
        return
    if not _may_steer(old):
        yield invalid_value("spec.template", template, "field is immutable")
        return
    steered = _with_directives(before, template)
    if template["spec"] != steered["spec"]:
        yield invalid_value("spec.template.spec", template["spec"], "field is immutable")


def _may_steer(job: JsonObject) -> bool:
    """Return whether the scheduling directives may change: suspended, and stopped or never started."""
    status = job.get("status", {})
    is_stopped = "startTime" not in status or has_condition(status, "Suspended")
    return bool(job["spec"].get("suspend")) and is_stopped and not status.get("active")


def _with_directives(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the old template with the scheduling directives and all resources of the new one."""
    spec = dict(old["spec"])
    for key in _DIRECTIVES:
        take(spec, new["spec"], key)
    take_node_affinity(spec, new["spec"])
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = _with_resources(spec[key], new["spec"].get(key, []))
    return {**new, "spec": spec}


def _with_resources(old: list[JsonObject], new: list[JsonObject]) -> list[JsonObject]:
    if [each["name"] for each in old] != [each["name"] for each in new]:
        return old
    return [{**was, "resources": now["resources"]} for was, now in zip(old, new, strict=True)]
