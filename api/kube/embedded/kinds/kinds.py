"""A served kind: one API version of one kind of object, and the rules that are specific to the kind.

Several `Kind`s may show one collection: the versions of a CRD, or core and events.k8s.io Events. One of them
is the form in which the collection stores its objects; the others convert on read and write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from api.kube.embedded.apply.errors import FieldError
from api.kube.embedded.apply.schema import Json, JsonObject, Schema
from api.kube.embedded.kinds import names
from api.kube.embedded.store import Collection, Stored, encode


class World(Protocol):
    """The parts of the server that the rules of a kind may query."""

    def now(self) -> str:
        """Return the current time in the form that objects use."""
        ...

    def find(self, group: str, plural: str, name: str, namespace: str = "") -> JsonObject | None:
        """Return an object as stored, or None."""
        ...

    def items(self, group: str, plural: str, namespace: str | None = None) -> list[JsonObject]:
        """Return the objects of a namespace, or of all namespaces."""
        ...


class Strategy:
    """The rules of a kind; the defaults apply to most kinds.

    Objects passed as `item` or `new` are newly created and may be changed in place; `old`
    must not be changed.
    """

    # Whether a change outside of metadata and status increments metadata.generation.
    counts_generations = False
    # Whether PUT may omit resourceVersion, and whether it may create the object.
    allows_unconditional_update = True
    allows_create_on_update = False
    # Whether a deletion may have a grace period, and whether its response is the object instead of a Status.
    is_graceful = False
    returns_deleted = False
    default_propagation = "Background"
    # Status of a new object of a built-in kind.
    blank_status: Mapping[str, Json] = {}
    # Top-level fields that the main endpoint, and the status endpoint, do not change.
    reset_by_main: Sequence[str] = ()
    reset_by_status: Sequence[str] = ("spec",)

    def fill(self, item: JsonObject) -> None:
        """Set the defaults."""

    def name_fault(self, name: str) -> str | None:
        """Return why `name` is not allowed, or None."""
        return names.subdomain_fault(name)

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Set the fields that the server determines at creation."""

    def admit(self, item: JsonObject, world: World) -> None:
        """Complete an object that is about to be created, or reject it (ApiError)."""

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Return the faults of the object."""
        del item
        return ()

    def prepare_update(self, new: JsonObject, old: JsonObject) -> None:
        """Set the fields that the server determines when the object itself is updated."""

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        """Keep in `new` what the status endpoint may write; reset all other fields to `old`."""
        for key in self.reset_by_status:
            if key in old:
                new[key] = old[key]
            else:
                new.pop(key, None)

    def update_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Return the faults of an update: changes that are not allowed."""
        del new, old
        return ()

    def status_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Return the faults of an update of the status."""
        del new, old
        return ()

    def holds(self, item: JsonObject) -> bool:
        """Return whether anything other than a finalizer delays the deletion of the object."""
        del item
        return False

    def mark_deletion(self, item: JsonObject) -> None:
        """Record on the object, a shallow copy, that its deletion has started."""

    def grace_seconds(self, item: JsonObject, asked: int | None) -> int:
        """Return how long the object exists after its deletion is requested; 0 deletes it immediately."""
        del item, asked
        return 0


def _leave(item: JsonObject) -> None:
    """Do nothing; used for kinds whose decoding already sets the defaults."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body converted to its kind, and the paths of the fields that were dropped."""

    item: JsonObject
    unknown: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, as `kubectl get` shows it. `priority` above 0 means only with -o wide."""

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
    # Sets the defaults of a decoded object, in place.
    fill: Callable[[JsonObject], None] = _leave
    # The object that results from an empty body; plain writes own only fields that differ from it.
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
    # Conversions between this version and the stored one; None if they are the same.
    to_stored: Callable[[JsonObject], JsonObject] | None = None
    from_stored: Callable[[JsonObject], JsonObject] | None = None

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name of the kind in messages: jobs.batch, pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether status has its own endpoint."""
        return "status" in self.subresources

    def details(self, name: str) -> JsonObject:
        """Return the `details` of a Status about an object of this kind."""
        group = {"group": self.group} if self.group else {}
        return {"name": name, **group, "kind": self.plural}

    def view(self, stored: Stored) -> Stored:
        """Return a stored object in the form of this version."""
        if self.from_stored is None:
            return stored
        item = self.from_stored(stored.item)
        return Stored(encode(item), item)

    def kept(self, item: JsonObject) -> JsonObject:
        """Return an object of this version in the form in which the collection stores it."""
        return item if self.to_stored is None else self.to_stored(item)

    def metadata_faults(self, item: JsonObject) -> Iterator[FieldError]:
        """Yield the faults of the object's metadata."""
        metadata = item["metadata"]
        return names.metadata_faults(metadata, self.strategy.name_fault(metadata["name"]))
