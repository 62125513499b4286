"""What Berth knows of a kind that is started and stopped as a whole: one row of the table of owners.

The functions of a row take the object as plain JSON, and may raise TypeError, KeyError or AttributeError for
one that the API server would not accept: `api.jobs.owners.owner` and `composing` turn these into a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.jobs.owners.paths import Body, Path, replaced
from api.jobs.pod_template import Template
from api.jobs.queued_object import JobOutcome
from api.jobs.resource_requests import LimitRange, requests_no_more
from api.parsing.faults import FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPodSet:
    """A pod set of an owner: `count` pods with the template that is found in the owner at `at`.

    `index_label` is the label that gives a pod its rank within its group. `group_label` is the label that
    numbers the groups, of which there are `groups`; None if all pods are of one. `extended` is the template
    with the containers that the controller of the kind adds to the pods itself; None if it adds none.
    """

    name: str
    count: int
    template: Template
    at: Path
    index_label: str | None = None
    group_label: str | None = None
    groups: int | None = None
    extended: Template | None = None

    @property
    def queued(self) -> Template:
        """The template as its Workload has it: with all that its pods request."""
        return self.template if self.extended is None else self.extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object that names an owner as its controller: the kind, the name, and the object.

    `limits` are those of its namespace.
    """

    kind: str
    name: str
    body: Body
    limits: tuple[LimitRange, ...] = ()

    def requests_no_more(self, pods: Template, template: Template) -> bool:
        """Return whether pods of it, or the pod that it is, request no more than those of a template.

        With the defaults of limit ranges in both: the API server fills them into pods, and Workloads count
        them.
        """
        return requests_no_more(pods, template, self.limits)


# Returns the object of this kind, namespace ("" for none) and name; None if there is none.
Read = Callable[[str, str, str], Body | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind that objects of a row refer to for what their pods are."""

    kind: str
    group: str
    version: str
    plural: str
    is_namespaced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """How a start and a stop change a kind whose pod templates are not in the object itself.

    `inject` returns the object with what a start adds, given its pod sets and their templates as started.
    `restore` returns it as it was; a stop does that in a write of its own, once no pod is active.
    `is_started` returns whether it has what a start has added.
    """

    inject: Callable[[Body, Sequence[OwnerPodSet], Mapping[str, Template]], Any]
    restore: Callable[[Body, Sequence[OwnerPodSet], Mapping[str, Template]], Any]
    is_started: Callable[[Body], bool]


def _nothing(_: Body) -> Mapping[str, int]:
    return NOTHING_RECLAIMABLE


def _no_child(_: Body, __: Child) -> bool:
    return False


def _no_faults(_: Body) -> Iterable[FieldError]:
    return ()


def _never(_: Body) -> bool:
    return False


def _no_additions(_: Body) -> Mapping[tuple[str, ...], object]:
    return {}


def _unknown(_: Body) -> str | None:
    return None


def _no_suffixes(_: Body) -> tuple[str, ...]:
    return ()


def _at_its_path(body: Body, pod_set: OwnerPodSet, template: Template) -> Body:
    changed: Body = replaced(body, pod_set.at, template)
    return changed


NOTHING_RECLAIMABLE: Mapping[str, int] = {}
# Where most kinds say whether they run.
SUSPEND = ("spec", "suspend")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerKind:
    """One kind. `framework` is what the configuration calls it in integrations.frameworks.

    `suspend` is the path of the field that says whether it runs. `pod_sets` returns its pod sets, in the
    order of its Workload's. `active` returns how many of its pods, or of its Jobs, run. `outcome` returns how
    it ended, None while it has not. `are_pods_ready` returns whether all of its pods are ready or have
    succeeded. `reclaimable` returns how many pods of each pod set need their quota no longer.
    `priority_class` is the path of the name of a PriorityClass that comes before those of its templates.
    `counts` returns whether an object that names it as controller is part of it, so that its own Workload has
    the quota for it. `owns_pods`: it is itself the controller of pods. `faults` yields what forbids an object
    of this kind to be queued, beside what holds for all kinds. `is_left_alone` returns whether an object is
    not queued at all, because it runs on what another object has. `is_on_hold` returns whether its controller
    refuses to run it as it is, so that it needs no quota. `additions` returns what a new object that
    is queued gets besides its suspension: values by path. `with_template` returns the object with another
    template in a pod set. `completes_at` returns when its status expects it to be complete, as RFC 3339, None
    where it does not say. `has_stale_status`: its status may go on saying that it runs once it is stopped, so
    that what it has created is asked instead. `update_gate` is the feature gate of Kueue that, switched off,
    leaves changes unchecked that take an object out of its queue; "" if there is none.

    `sources` are the kinds that say what its pods are, and `expand` returns the object together with what
    they say: `pod_sets`, `are_pods_ready`, `reclaimable` and `counts` get that. `templates`: how it is
    started and stopped if its templates are not in itself. `may_be_elastic`: its number of pods may change
    while it runs, if it asks for that. `slice_suffixes` return what the name of a slice has beside the
    generation of the object, as expanded, and what is added to that where another slice has the name.
    """

    kind: str
    group: str
    version: str
    plural: str
    framework: str
    pod_sets: Callable[[Body], tuple[OwnerPodSet, ...]]
    active: Callable[[Body], int]
    outcome: Callable[[Body], JobOutcome | None]
    are_pods_ready: Callable[[Body], bool]
    suspend: tuple[str, ...] = SUSPEND
    reclaimable: Callable[[Body], Mapping[str, int]] = _nothing
    priority_class: Path | None = None
    counts: Callable[[Body, Child], bool] = _no_child
    owns_pods: bool = False
    faults: Callable[[Body], Iterable[FieldError]] = _no_faults
    is_left_alone: Callable[[Body], bool] = _never
    is_on_hold: Callable[[Body], bool] = _never
    additions: Callable[[Body], Mapping[tuple[str, ...], object]] = _no_additions
    with_template: Callable[[Body, OwnerPodSet, Template], Body] = _at_its_path
    completes_at: Callable[[Body], str | None] = _unknown
    has_stale_status: bool = False
    update_gate: str = ""
    sources: tuple[Source, ...] = ()
    expand: Callable[[Body, Read], Body] | None = None
    templates: Templates | None = None
    may_be_elastic: bool = False
    slice_suffixes: Callable[[Body], tuple[str, ...]] = _no_suffixes

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}"

    def __str__(self) -> str:
        return self.kind
