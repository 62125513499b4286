"""A served kind: one API version of one kind of object, and the rules that are the kind's own.

Several `Kind`s may show one collection: the versions of a CRD, or core and events.k8s.io Events. One of
them is the form in which the collection keeps its objects; the others convert on the way in and out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from api.kube.embedded.apply.errors import FieldError
from api.kube.embedded.apply.schema import Json, JsonObject, Schema
from api.kube.embedded.kinds import names
from api.kube.embedded.store import Collection, Stored, encode


class World(Protocol):
    """What a kind's rules may ask about the rest of the server."""

    def now(self) -> str:
        """The time as objects write it."""
        ...

    def find(self, group: str, plural: str, name: str, namespace: str = "") -> JsonObject | None:
        """One object, as stored."""
        ...

    def items(self, group: str, plural: str, namespace: str | None = None) -> list[JsonObject]:
        """The objects of a namespace, or of all."""
        ...


class Strategy:
    """The rules of a kind, with the answers that most kinds give.

    Objects that are handed over as `item` or `new` are freshly made and may be changed in place; `old` may
    not.
    """

    # Whether a change of anything but metadata and status raises metadata.generation.
    counts_generations = False
    # Whether PUT may leave out resourceVersion, and whether it may create the object.
    allows_unconditional_update = True
    allows_create_on_update = False
    # Whether a deletion may give the object time, and whether it answers with the object, not with a Status.
    is_graceful = False
    returns_deleted = False
    default_propagation = "Background"
    # What status a new object of a built-in kind has.
    blank_status: Mapping[str, Json] = {}
    # Top-level fields that the object's own endpoint, and its status endpoint, leave alone.
    reset_by_main: Sequence[str] = ()
    reset_by_status: Sequence[str] = ("spec",)

    def fill(self, item: JsonObject) -> None:
        """Fill the defaults."""

    def name_fault(self, name: str) -> str | None:
        """Why `name` is not allowed, or None."""
        return names.subdomain_fault(name)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set what the server decides at creation."""

    def admit(self, item: JsonObject, world: World) -> None:
        """Complete or refuse (ApiError) an object that is about to be created."""

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """What is wrong with the object."""
        del item
        return ()

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        """Set what the server decides at an update of the object itself."""

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        """Take from `new` what the status endpoint may write; the rest stays as in `old`."""
        for key in self.reset_by_status:
            if key in old:
                new[key] = old[key]
            else:
                new.pop(key, None)

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """What this update may not change."""
        del new, old
        return ()

    def status_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """What this update of the status may not say."""
        del new, old
        return ()

    def holds(self, item: JsonObject) -> bool:
        """Whether something other than a finalizer keeps the object when it is deleted."""
        del item
        return False

    def mark_deletion(self, item: JsonObject) -> None:
        """Note on the object, a shallow copy, that its deletion has begun."""

    def grace_seconds(self, item: JsonObject, asked: int | None) -> int:
        """How long the object lives on after its deletion is asked for; 0: not at all."""
        del item, asked
        return 0


def _leave(item: JsonObject) -> None:
    """Fill nothing: the default for kinds whose decoding fills their defaults."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body made to fit its kind, and the paths of the fields that were dropped for it."""

    item: JsonObject
    unknown: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, as `kubectl get` shows it. `priority` above 0: only with -o wide."""

    name: str
    value: Callable[[JsonObject], str | int | None]
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One API version of one kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    collection: Collection
    schema: Schema
    strategy: Strategy
    decode: Callable[[JsonObject], Decoded]
    # Fills the defaults of a decoded object, in place.
    fill: Callable[[JsonObject], None] = _leave
    # What an object shows when nothing was given; plain writes own what differs from it.
    empty: JsonObject = field(default_factory=dict)
    singular: str = ""
    list_kind: str = ""
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[str] = ()
    columns: Sequence[Column] = ()
    selectable: Sequence[str] = ()
    selectable_aliases: Mapping[str, str] = field(default_factory=dict)
    is_custom: bool = False
    # Between this version and the stored one; None where they are the same.
    to_stored: Callable[[JsonObject], JsonObject] | None = None
    from_stored: Callable[[JsonObject], JsonObject] | None = None

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The kind as messages name it: jobs.batch, pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether status has its own endpoint."""
        return "status" in self.subresources

    def details(self, name: str) -> JsonObject:
        """Return the details that a Status gives about an object of this kind."""
        group = {"group": self.group} if self.group else {}
        return {"name": name, **group, "kind": self.plural}

    def view(self, stored: Stored) -> Stored:
        """Return a stored object as this version shows it."""
        if self.from_stored is None:
            return stored
        item = self.from_stored(stored.item)
        return Stored(encode(item), item)

    def kept(self, item: JsonObject) -> JsonObject:
        """Return an object of this version as the collection keeps it."""
        return item if self.to_stored is None else self.to_stored(item)

    def metadata_faults(self, item: JsonObject) -> Iterator[FieldError]:
        """Yield what is wrong with the object's metadata."""
        metadata = item["metadata"]
        return names.metadata_faults(metadata, self.strategy.name_fault(metadata["name"]))
