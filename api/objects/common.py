"""Structs that objects of all kinds share: metadata, conditions, selectors, taints."""

from __future__ import annotations

import msgspec


# gc=False, because none of them can be part of a cycle, so the collector need not traverse tens of thousands.
class Wire(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    """The base of all wire structs: camelCase names, frozen.

    An unknown field is ignored and a wrong type raises msgspec.ValidationError, whose message names the path.
    """


class OwnerReference(Wire, frozen=True):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    """The fields of metadata that are read.

    Times are RFC 3339 texts. `resource_version` is opaque: it may be compared for equality only, except where
    a server is known to count. `generation` is 0 where the server does not count changes of the spec.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The reference to the owner that manages this object, which has controller=true.

        None without one.
        """
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class WireCondition(Wire, frozen=True):
    """status.conditions[] of any kind.

    `status` is the text True, False or Unknown. `last_transition_time` is an RFC 3339 text in whole seconds.
    """

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class NamedObject(Wire, frozen=True):
    """An object of which only the metadata is read (Namespace, LocalQueue owners, ...)."""

    metadata: Meta


class WireSelectorRequirement(Wire, frozen=True):
    """One requirement of a label selector: operator In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class WireSelector(Wire, frozen=True):
    """metav1.LabelSelector.

    All requirements must hold. An empty selector selects everything, an absent one depends on its field.
    """

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[WireSelectorRequirement, ...] | None = None


class WireToleration(Wire, frozen=True):
    """core/v1 Toleration.

    An empty key with the operator Exists tolerates every taint; an empty effect matches every effect.
    """

    key: str = ""
    # The API server's default, which may be missing in objects from files.
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WireTaint(Wire, frozen=True):
    """core/v1 Taint.

    `effect` is NoSchedule, PreferNoSchedule or NoExecute.
    """

    key: str
    effect: str
    value: str = ""
