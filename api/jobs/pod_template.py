"""Pod templates as plain objects: what a Workload stores of them, what a start adds, and what a stop removes.

A template is edited as JSON, never through the partial structs of `api.objects`: a pod has hundreds of
fields, and all of them must be preserved. Arguments are not modified; results share unchanged parts with
them. Source: Kueue, pkg/podset/podset.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api import keys
from api.parsing.quantities import QuantityError, canonical, parse
from api.workload import NOTHING

Template = Mapping[str, Any]

# Labels that the API server adds to a Job's template, and that the selector of the Job needs.
_SERVER_LABELS = frozenset({"controller-uid", "job-name"})
_SERVER_PREFIX = "batch.kubernetes.io/"
# Those of them that tell Jobs apart, apart from the present name of the Job's own. A Workload has none: pods
# that are made from it, as for a ProvisioningRequest, are no pods of the Job. Source: Kueue,
# pkg/controller/jobs/job.
_IDENTITIES = frozenset({"controller-uid", "batch.kubernetes.io/controller-uid", "job-name"})

# Keys that only Kueue and Berth write to a template: a start overwrites them, a stop removes them.
_OWN_KEYS = frozenset(
    {
        keys.POD_SET,
        keys.WORKLOAD,
        keys.SLICE_NAME,
        keys.CLUSTER_QUEUE_NAME,
        keys.LOCAL_QUEUE_NAME,
        keys.MANAGED,
    }
)
# Annotations that a start adds for ProvisioningRequest checks.
_AUTOSCALING_PREFIX = "autoscaling.x-k8s.io/"

# A container that differs in one of these fields counts as another one. Every version of the CRD keeps these
# fields; a field that a server prunes would always appear to differ.
_COMPARED = ("name", "image", "command", "args", "restartPolicy")
# Fields that a start changes, besides labels and annotations.
_STARTED = ("nodeSelector", "tolerations", "schedulingGates")
_HOLDERS = ("initContainers", "containers")
# What pods need of their nodes, besides the requests of their containers.
_NEEDS = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What a start adds to a pod template.

    `gates` are names of scheduling gates. `one_of` maps node labels to the values that a node may have.
    """

    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    node_selector: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    gates: tuple[str, ...] = ()
    one_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class StartConflict(ValueError):
    """Two sources require different values for one field, so the pods cannot start as admitted."""

    def __init__(self, field: str, have: str, want: str) -> None:
        super().__init__(
            f"{field} is {have!r}, but its admission needs {want!r}; remove it from the template"
        )
        self.field, self.have, self.want = field, have, want


def sanitised(template: Template) -> dict[str, Any]:
    """Return the template as a Workload stores it: labels, annotations and the whole spec.

    All labels and annotations are kept, because a stop restores them from here. If a container defines a
    variable twice, the last definition is kept, as in a running pod. A quantity that is written as a fraction
    becomes a text.
    """
    kept = {name: values for name in ("labels", "annotations") if (values := _metadata(template, name))}
    # The API server accepts two env entries of the same name in a Job, but rejects them in a Workload,
    # because the lists of the CRD are keyed by name.
    spec = dict(template.get("spec") or {})
    for holder in _HOLDERS:
        if spec.get(holder):
            spec[holder] = [_storable(container) for container in spec[holder]]
    return {"metadata": kept, "spec": spec}


def without_identity(template: Template) -> Template:
    """Return the template of a Job without the labels by which the API server tells Jobs apart."""
    metadata = template.get("metadata") or {}
    if not _IDENTITIES & _metadata(template, "labels").keys():
        return template
    return {**template, "metadata": {**metadata, "labels": _common_labels(template)}}


def _common_labels(template: Template) -> dict[str, str]:
    return {key: value for key, value in _metadata(template, "labels").items() if key not in _IDENTITIES}


def resource_faults(template: Template, where: str = "spec.template") -> list[str]:
    """Return the faults of the template's containers and their quantities, each as a sentence.

    `where` is the path of the template. Faults are: a quantity that is malformed or negative, the resource
    `pods` (which is counted automatically), and a template without containers.
    """
    spec = template.get("spec") or {}
    if not spec.get("containers"):
        return [f"{where}.spec.containers is empty: a pod needs at least one container"]
    return [
        fault
        for holder, resources in _resource_holders(spec)
        for kind in ("requests", "limits")
        for name, quantity in (resources.get(kind) or {}).items()
        if (fault := _quantity_fault(f"{where}.spec{holder}.resources.{kind}[{name}]", name, quantity))
    ]


def has_gate(template: Template, gate: str) -> bool:
    """Return whether the pods of the template wait at this scheduling gate."""
    gates = (template.get("spec") or {}).get("schedulingGates") or ()
    return any(one.get("name") == gate for one in gates)


def has_same_containers(one: Template, other: Template) -> bool:
    """Return whether both templates have the same containers with the same resources.

    Quantities are compared by value: "1000m" equals "1".
    """
    mine, theirs = one.get("spec") or {}, other.get("spec") or {}
    return all(_is_alike(mine.get(holder), theirs.get(holder)) for holder in _HOLDERS)


def _is_alike(mine: Sequence[Mapping[str, Any]] | None, theirs: Sequence[Mapping[str, Any]] | None) -> bool:
    # Most often nothing has changed at all, which is much cheaper to see.
    return mine == theirs or _shapes(mine) == _shapes(theirs)


def has_same_tolerations(one: Template, other: Template) -> bool:
    """Return whether both templates tolerate the same taints, in any order."""
    mine, theirs = _tolerations(one), _tolerations(other)
    return len(mine) == len(theirs) and all(toleration in theirs for toleration in mine)


def has_same_needs(one: Template, other: Template) -> bool:
    """Return whether pods of both templates need the same of their nodes.

    Source: Kueue, pkg/controller/admissionchecks/provisioning, arePodSetsSimilar.
    """
    first, second = one.get("spec") or {}, other.get("spec") or {}
    return all(_requests(first.get(holder)) == _requests(second.get(holder)) for holder in _HOLDERS) and all(
        (first.get(name) or None) == (second.get(name) or None) for name in _NEEDS
    )


def has_same_directives(one: Template, other: Template, *, is_complete: bool = False) -> bool:
    """Return whether labels, annotations, node selector, required node affinity and gates are the same.

    Labels and annotations are compared only if `other` has all of them: Workloads that other controllers
    create for Jobs contain a part. `is_complete`: it is known to have all.
    """
    mine, theirs = one.get("spec") or {}, other.get("spec") or {}
    # Only fields that decide where a pod may run are compared. Priority, service account and volumes may
    # differ without affecting the admission.
    if any(
        (mine.get(name) or None) != (theirs.get(name) or None) for name in ("nodeSelector", "schedulingGates")
    ):
        return False
    if _required_affinity(mine) != _required_affinity(theirs):
        return False
    return not (is_complete or _is_complete(other)) or (
        _common_labels(one) == _common_labels(other)
        and _metadata(one, "annotations") == _metadata(other, "annotations")
    )


def merged_injection(first: Injection, update: Mapping[str, Any]) -> Injection:
    """Return the injection merged with an entry of an admission check's podSetUpdates.

    Raises StartConflict.
    """
    return Injection(
        labels=_merged("label", first.labels, update.get("labels")),
        annotations=_merged("annotation", first.annotations, update.get("annotations")),
        node_selector=_merged("nodeSelector", first.node_selector, update.get("nodeSelector")),
        tolerations=(*first.tolerations, *(update.get("tolerations") or ())),
        gates=first.gates,
        one_of=first.one_of,
    )


def injection_patch(template: Template, injection: Injection) -> dict[str, Any]:
    """Return the merge patch that adds the injection to the template; empty if the template already has it.

    Raises StartConflict if a label, annotation or node selector of the user has another value.
    """
    return _patch(template, *_injected_parts(template, injection))


def injected(template: Template, injection: Injection) -> dict[str, Any]:
    """Return the template with the injection added, and limits in place of missing requests.

    Raises StartConflict as `injection_patch`.
    """
    metadata, fields = _injected_parts(template, injection)
    spec = {**(template.get("spec") or {}), **{name: value for name, value in fields.items() if value}}
    for holder in _HOLDERS:
        if spec.get(holder):
            spec[holder] = [_with_requests(container) for container in spec[holder]]
    kept = {name: dict(values) for name, values in metadata.items() if values}
    return {"metadata": {**(template.get("metadata") or {}), **kept}, "spec": _with_requests(spec)}


def _with_requests(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container or a pod spec whose limits count as requests where it requests nothing."""
    resources = holder.get("resources") or {}
    if not resources.get("limits"):
        return dict(holder)
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**holder, "resources": {**resources, "requests": requests}}


def _injected_parts(
    template: Template, injection: Injection
) -> tuple[dict[str, Mapping[str, str]], dict[str, Any]]:
    """Return the metadata and the fields of the spec that a template has with the injection."""
    spec = template.get("spec") or {}
    wanted: dict[str, Any] = {
        "nodeSelector": _merged("nodeSelector", spec.get("nodeSelector"), injection.node_selector),
        "tolerations": _extended(spec.get("tolerations"), injection.tolerations),
        "schedulingGates": _extended(
            spec.get("schedulingGates"), ({"name": name} for name in injection.gates)
        ),
    }
    if injection.one_of:
        wanted["affinity"] = _narrowed(spec.get("affinity"), injection.one_of)
    labels = _merged("label", _metadata(template, "labels"), injection.labels)
    annotations = _merged("annotation", _metadata(template, "annotations"), injection.annotations)
    return {"labels": labels, "annotations": annotations}, wanted


def restore_patch(template: Template, original: Template, *, is_complete: bool = False) -> dict[str, Any]:
    """Return the merge patch that restores the Workload's template; empty if nothing differs.

    Labels that the API server wrote stay. If the Workload stores only a part of a Job's metadata, because
    another controller created it, labels and annotations other than Berth's and Kueue's own stay unchanged.
    `is_complete`: it is known to have all.
    """
    spec, is_whole = original.get("spec") or {}, is_complete or _is_complete(original)
    wanted = {name: spec.get(name) for name in (*_STARTED, "affinity")}
    metadata = {
        name: _restored(_metadata(template, name), _metadata(original, name), is_whole)
        for name in ("labels", "annotations")
    }
    return _patch(template, metadata, wanted)


def has_started(template: Template) -> bool:
    """Return whether a start has written into the template, and no stop has restored it."""
    return keys.WORKLOAD in _metadata(template, "annotations") or keys.POD_SET in _metadata(
        template, "labels"
    )


def _patch(
    template: Template, metadata: Mapping[str, Mapping[str, str]], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the merge patch that changes the template to this metadata and these fields of the spec."""
    labels = {
        name: changes
        for name, want in metadata.items()
        if (changes := merge_patch(_metadata(template, name), want))
    }
    have = template.get("spec") or {}
    fields: dict[str, Any] = {}
    for name, want in spec.items():
        if name in ("nodeSelector", "affinity"):
            if changes := merge_patch(have.get(name) or {}, want or {}):
                fields[name] = changes
        elif (have.get(name) or None) != (want or None):
            fields[name] = want or None
    return {**({"metadata": labels} if labels else {}), **({"spec": fields} if fields else {})}


def merge_patch(have: Mapping[str, Any], want: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one object to another; a list that differs is replaced as a whole."""
    changes: dict[str, Any] = {key: None for key in have if key not in want}
    for key, value in want.items():
        # Keys that are absent from `want` are already null in `changes`, which removes them. A merge patch
        # cannot merge lists, so they are replaced.
        present = have.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(present, value):
                changes[key] = inner
        elif present != value:
            changes[key] = value
    return changes


def _narrowed(affinity: Mapping[str, Any] | None, one_of: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the affinity with one additional requirement per label in each of its terms."""
    added = [{"key": key, "operator": "In", "values": list(values)} for key, values in one_of.items()]
    # The terms are alternatives, the expressions within a term must all hold. A requirement that
    # must hold in every case is therefore added to each term. An absent affinity is treated as
    # one term without expressions.
    terms = (_required_affinity({"affinity": affinity}) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [
        {**term, "matchExpressions": _extended(term.get("matchExpressions"), added)} for term in terms
    ]
    of_nodes = (affinity or {}).get("nodeAffinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": narrowed}}
    return {**(affinity or {}), "nodeAffinity": {**of_nodes, **required}}


def _restored(have: Mapping[str, str], original: Mapping[str, str], is_complete: bool) -> dict[str, str]:
    # The API server does not allow labels such as controller-uid to change: it would reject a patch that
    # removes them, and the stop would fail.
    kept = {
        key: value
        for key, value in have.items()
        if _is_server_label(key)
        or not (is_complete or key in _OWN_KEYS or key.startswith(_AUTOSCALING_PREFIX))
    }
    return {**original, **kept} if is_complete else {**kept, **original}


def _is_complete(original: Template) -> bool:
    """Return whether the Workload's template has all labels of the Job, those of the API server included."""
    return any(_is_server_label(key) for key in _metadata(original, "labels"))


def _is_server_label(key: str) -> bool:
    return key in _SERVER_LABELS or key.startswith(_SERVER_PREFIX)


def _metadata(template: Template, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] | None = (template.get("metadata") or {}).get(name)
    return found or NOTHING


def _merged(field: str, have: Mapping[str, str] | None, want: Mapping[str, str] | None) -> dict[str, str]:
    merged = dict(have or {})
    # A user's own value is never overwritten: running elsewhere than the user specified is as wrong as
    # running elsewhere than was admitted, so the conflict is reported.
    for key, value in (want or {}).items():
        if key not in _OWN_KEYS and merged.get(key, value) != value:
            raise StartConflict(f"{field} {key}", merged[key], value)
        merged[key] = value
    return merged


def _extended(
    have: Sequence[Mapping[str, Any]] | None, more: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    extended = list(have or ())
    for entry in more:
        if not any(_without_empty(entry) == _without_empty(present) for present in extended):
            extended.append(entry)
    return extended


def _required_affinity(spec: Mapping[str, Any]) -> Any:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def _tolerations(template: Template) -> list[dict[str, Any]]:
    return [_without_empty(entry) for entry in (template.get("spec") or {}).get("tolerations") or ()]


def _without_empty(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a toleration without the fields that equal their default: empty strings, operator Equal."""
    return {
        name: value
        for name, value in entry.items()
        if value not in (None, "") and (name, value) != ("operator", "Equal")
    }


def _shapes(containers: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    return [_shape(container) for container in containers or ()]


def _shape(container: Mapping[str, Any]) -> dict[str, Any]:
    shape = {name: container[name] for name in _COMPARED if container.get(name)}
    # Only plain values of variables are compared: older CRDs prune newer kinds of sources.
    shape["env"] = {variable.get("name"): variable.get("value") for variable in container.get("env") or ()}
    resources = container.get("resources") or {}
    for kind in ("requests", "limits"):
        shape[kind] = {name: _comparable(quantity) for name, quantity in (resources.get(kind) or {}).items()}
    return shape


def _requests(containers: Sequence[Mapping[str, Any]] | None) -> list[dict[str, str]]:
    return [
        {
            name: _comparable(quantity)
            for name, quantity in ((one.get("resources") or {}).get("requests") or {}).items()
        }
        for one in containers or ()
    ]


def _comparable(quantity: Any) -> str:
    try:
        return canonical(quantity)
    except QuantityError:
        return str(quantity)


def _storable(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container as the CRD of Workloads accepts it."""
    stored = dict(container)
    if env := container.get("env"):
        stored["env"] = list({variable.get("name"): variable for variable in env}.values())
    # What an AppWrapper wraps is kept as it was written: `cpu: 0.5` may be a number, which CRDs refuse.
    for kind, quantities in (container.get("resources") or {}).items():
        if kind in ("requests", "limits") and any(map(_is_fraction, (quantities or {}).values())):
            stored["resources"] = {**stored["resources"], kind: _as_texts(quantities)}
    return stored


def _is_fraction(quantity: object) -> bool:
    return isinstance(quantity, float)


def _as_texts(quantities: Mapping[str, Any]) -> dict[str, Any]:
    return {name: repr(one) if _is_fraction(one) else one for name, one in quantities.items()}


def _resource_holders(spec: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    holders = [("", spec)] + [
        (f".{holder}[{container.get('name', '')}]", container)
        for holder in _HOLDERS
        for container in spec.get(holder) or ()
    ]
    return [(where, held["resources"]) for where, held in holders if held.get("resources")]


def _quantity_fault(where: str, resource: str, quantity: Any) -> str | None:
    if resource == "pods":
        return f"{where} is {quantity!r}: the resource pods is counted automatically; remove it"
    try:
        value = parse(quantity)
    except QuantityError as error:
        return f"{where}: {error}"
    return f"{where} is {quantity!r}: a quantity cannot be negative" if value < 0 else None
