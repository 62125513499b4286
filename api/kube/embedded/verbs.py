"""Create, update and delete: what a request does to the store, in the same steps as in the real server.

Nothing here awaits, so a request is one atomic step and needs no lock. The steps of every write are: decode
the body, set defaults, record field ownership, let the kind prepare the object, validate it, commit.

Source: k8s.io/apiserver, pkg/endpoints/handlers and pkg/registry/generic/registry/store.go.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from api.kube.embedded.apply import managed_fields
from api.kube.embedded.apply.builtin_types import DecodeError
from api.kube.embedded.apply.errors import (
    FieldError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    required,
)
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.checks import (
    check_name,
    check_namespace,
    check_preconditions,
    check_type,
    check_version,
)
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.kinds.names import metadata_update_faults
from api.kube.embedded.metadata import (
    complete_name,
    counted_content,
    is_finished,
    is_same,
    keep_fixed,
    mark_deleted,
    set_propagation,
)
from api.kube.embedded.options import DeleteOptions, WriteOptions, WriteOutcome
from api.kube.embedded.store import ChangeType, ObjectStore, Stored, encode
from api.parsing.times import to_rfc3339

Transform = Callable[[JsonObject], JsonObject]


class Verbs:
    """The write operations on a store and the kinds that are served from it."""

    def __init__(self, store: ObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def now(self) -> str:
        """Return the current time in the form that objects use."""
        return to_rfc3339(time.time())

    def find(self, group: str, plural: str, name: str, namespace: str = "") -> JsonObject | None:
        """Return one object as stored, or None."""
        stored = self._store.collection(group, plural).find(namespace, name)
        return stored.item if stored else None

    def items(self, group: str, plural: str, namespace: str | None = None) -> list[JsonObject]:
        """Return the objects of a namespace, or of all, as stored."""
        return [stored.item for stored in self._store.collection(group, plural).all(namespace)]

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return an object in the version of `kind`. Raises ApiError (404)."""
        return kind.view(_current(kind, namespace, name))

    def create(
        self, kind: Kind, namespace: str, body: Json, options: WriteOptions, *, is_tracked: bool = False
    ) -> WriteOutcome:
        """Create the object; `is_tracked`: its managedFields are already set. Raises ApiError."""
        # The type is checked first, because the rules of a kind apply only to its own objects.
        check_type(kind, body)
        check_namespace(kind, namespace, body)
        item, warnings = self._decode(kind, body, options)
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            # The real server returns 500 with this message; here it is a client error.
            raise bad_request("resourceVersion should not be set on objects to be created")
        # The name is checked only after this, because it may be derived from generateName.
        complete_name(metadata)
        if not metadata.get("name"):
            missing = required("metadata.name", "name or generateName is required")
            raise invalid(kind, "", [missing])
        self._check_space(kind, namespace, metadata["name"])
        self._born(kind, namespace, metadata)
        kind.fill(item)
        # Ownership is recorded before the server adds fields of its own, which have no owner.
        if not is_tracked:
            self._track(kind, kind.empty, item, options)
        # The kind's own preparation (for example a Job's selector and labels) follows for the same reason.
        kind.strategy.prepare_create(item, self)
        kind.strategy.admit(item, self)
        self._judge(kind, item, kind.strategy.faults(item))
        # Last, as in the real server: faults of the object are reported before the conflict of names.
        if kind.collection.find(namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        stored = self._commit(kind, ChangeType.ADDED, item, None, options)
        return WriteOutcome(stored=stored, created=True, warnings=warnings)

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Transform,
        options: WriteOptions,
        *,
        is_tracked: bool = False,
    ) -> WriteOutcome:
        """Replace the object by the result of `change`. Raises ApiError.

        A write that changes nothing keeps the version and wakes no watcher. If an object is being deleted, a
        write that removes its last finalizer deletes it.
        """
        current = _current(kind, namespace, name)
        old = kind.view(current).item
        # 1. Compute the new state in the client's version, and check that it refers to this
        # object and its state.
        body = change(old)
        check_type(kind, body)
        check_namespace(kind, namespace, body)
        check_name(name, body)
        new, warnings = self._decode(kind, body, options)
        check_version(kind, name, new["metadata"], old["metadata"])
        # 2. Restore immutable metadata, set defaults, record ownership.
        keep_fixed(new["metadata"], old["metadata"])
        kind.fill(new)
        if not is_tracked:
            self._track(kind, old, new, options)
        # A status write changes only the status, any other write everything else.
        self._prepare(kind, new, old, options)
        # 3. If nothing has changed, there is no new version and no event. Otherwise validate and commit.
        if is_same(new, old):
            return WriteOutcome(stored=kind.view(current), warnings=warnings)
        self._judge(kind, new, self._update_faults(kind, new, old, options))
        type_ = ChangeType.DELETED if is_finished(new) else ChangeType.MODIFIED
        stored = self._commit(kind, type_, new, current.item, options)
        return WriteOutcome(stored=stored, deleted=type_ is ChangeType.DELETED, warnings=warnings)

    def replace(
        self, kind: Kind, namespace: str, name: str, body: Json, options: WriteOptions
    ) -> WriteOutcome:
        """Replace the object by `body` (PUT), or create it if the kind allows that. Raises ApiError."""
        check_type(kind, body)
        check_name(name, body)
        is_new = kind.collection.find(namespace, name) is None
        # Some kinds, such as Leases and Events, can be created by PUT.
        if is_new and kind.strategy.allows_create_on_update and not options.subresource:
            return self.create(kind, namespace, body, options)
        return self.update(kind, namespace, name, lambda _: body, options)

    def apply(
        self, kind: Kind, namespace: str, name: str, body: Json, options: WriteOptions, *, force: bool
    ) -> WriteOutcome:
        """Server-side apply: create the object, or merge the intent of its manager into it.

        Raises ApiError.
        """
        check_type(kind, body)
        check_name(name, body)
        check_namespace(kind, namespace, body)
        metadata = {**(body.get("metadata") or {}), "name": name}
        if kind.namespaced:
            metadata["namespace"] = namespace
        wanted = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        writer = self._writer(kind, options)

        def change(live: JsonObject) -> JsonObject:
            reset = _reset(kind, options)
            return managed_fields.apply(kind.schema, live, wanted, writer, force=force, reset=reset)

        # Applying a status does not create an object.
        if kind.collection.find(namespace, name) is None and not options.subresource:
            if wanted["metadata"].get("uid"):
                raise conflict(kind, name, "uid mismatch: the provided object specified a uid")
            return self.create(kind, namespace, change({}), options, is_tracked=True)
        return self.update(kind, namespace, name, change, options, is_tracked=True)

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> WriteOutcome:
        """Delete the object, or mark it while a grace period or finalizers delay the deletion.

        Raises ApiError.
        """
        current = _current(kind, namespace, name)
        old = current.item
        check_preconditions(kind, name, old["metadata"], options)
        metadata = dict(old["metadata"])
        set_propagation(metadata, options.propagation, kind.strategy.default_propagation)
        # Only pods have a grace period; it is 0 for all other kinds.
        grace = kind.strategy.grace_seconds(old, options.grace_seconds)
        is_held = bool(metadata.get("finalizers")) or kind.strategy.holds(old)
        is_over = not is_held and grace == 0
        # Without finalizers and grace period, the object is deleted immediately, without being marked.
        if kind.strategy.is_graceful or not is_over:
            mark_deleted(metadata, grace)
        if kind.strategy.holds(old):
            # An object that is held by its own finalizers waits for them, and has no grace period.
            metadata.pop("deletionGracePeriodSeconds", None)
        marked = {**old, "metadata": metadata}
        if is_over:
            return WriteOutcome(stored=self._deleted(kind, marked, old, options), deleted=True)
        # A repeated deletion changes nothing, so there is no new version and no event.
        kind.strategy.mark_deletion(marked)
        if marked == old:
            return WriteOutcome(stored=kind.view(current))
        if options.dry_run:
            return WriteOutcome(stored=Stored(encode(marked), marked))
        stored = self._store.commit(kind.collection, ChangeType.MODIFIED, marked, old)
        return WriteOutcome(stored=kind.view(stored))

    def bind(
        self, kind: Kind, namespace: str, name: str, node: str, binding: JsonObject, options: WriteOptions
    ) -> WriteOutcome:
        """Assign a pod to a node, once. Raises ApiError (404, 409)."""
        old = _current(kind, namespace, name).item
        metadata, spec = old["metadata"], old["spec"]
        # A uid in the binding restricts it to this very pod, and not another one of the same name.
        wanted = binding.get("metadata") or {}
        if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
            raise conflict(kind, name, f"Precondition failed: UID in precondition: {wanted['uid']}")
        # The order of these checks is that of the real server: deleted, bound, gated.
        if metadata.get("deletionTimestamp"):
            raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise conflict(kind, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        # The scheduler never binds a gated pod, but another client might.
        if spec.get("schedulingGates"):
            raise conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")
        new = {**old, "spec": {**spec, "nodeName": node}, "status": _scheduled(old["status"], self.now())}
        stored = self._commit(kind, ChangeType.MODIFIED, new, old, options)
        return WriteOutcome(stored=stored)

    def finalize(self, kind: Kind, name: str, body: Json) -> WriteOutcome:
        """Set the finalizers in a namespace's spec; in deletion, the last one deletes it. Raises ApiError."""
        # These finalizers are in the spec, and only this subresource changes them.
        check_type(kind, body)
        current = _current(kind, "", name)
        finalizers = (body.get("spec") or {}).get("finalizers") or []
        new = {**current.item, "spec": {**current.item["spec"], "finalizers": finalizers}}
        is_over = is_finished(new) and not finalizers
        type_ = ChangeType.DELETED if is_over else ChangeType.MODIFIED
        stored = self._store.commit(kind.collection, type_, new, current.item)
        return WriteOutcome(stored=stored, deleted=is_over)

    def _decode(self, kind: Kind, body: JsonObject, options: WriteOptions) -> tuple[JsonObject, list[str]]:
        typed = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        refused = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
        try:
            decoded = kind.decode(typed)
        except DecodeError as error:
            raise bad_request(f"{refused}: {error}") from error
        # Strict rejects, Warn returns warnings, Ignore does nothing; the paths are the same.
        shown = [f'unknown field "{path}"' for path in decoded.unknown]
        if shown and options.field_validation == "Strict":
            prefix = "" if kind.is_custom else f"{refused}: "
            raise bad_request(f"{prefix}strict decoding error: {', '.join(shown)}")
        return decoded.item, shown if options.field_validation == "Warn" else []

    def _check_space(self, kind: Kind, namespace: str, name: str) -> None:
        """Raise ApiError if the namespace does not exist or is being deleted."""
        if not kind.namespaced:
            return
        spaces = self._catalog.find("", "v1", "namespaces")
        # While the server is being set up, there are no namespaces at all.
        found = self.find("", "namespaces", namespace)
        if found is None and spaces is not None:
            raise not_found(spaces, namespace)
        if found and found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind, name, why, causes=[cause])

    def _born(self, kind: Kind, namespace: str, metadata: JsonObject) -> None:
        if kind.namespaced:
            metadata["namespace"] = namespace
        # random and not os.urandom: a replay creates hundreds of thousands of objects, and uids
        # are no secret here.
        metadata["uid"] = str(uuid.UUID(int=random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.now()
        # A body that was read from a cluster may contain these fields.
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            metadata.pop(key, None)
        if kind.strategy.counts_generations:
            metadata["generation"] = 1

    def _track(self, kind: Kind, old: JsonObject, new: JsonObject, options: WriteOptions) -> None:
        writer = self._writer(kind, options)
        entries = managed_fields.after_update(kind.schema, old, new, writer, reset=_reset(kind, options))
        if entries:
            new["metadata"]["managedFields"] = entries
        else:
            new["metadata"].pop("managedFields", None)

    def _writer(self, kind: Kind, options: WriteOptions) -> managed_fields.Writer:
        return managed_fields.Writer(
            manager=options.manager,
            api_version=kind.api_version,
            subresource=options.subresource,
            at=self.now(),
        )

    def _prepare(self, kind: Kind, new: JsonObject, old: JsonObject, options: WriteOptions) -> None:
        if options.subresource == "status":
            kind.strategy.prepare_status(new, old)
            return
        if kind.has_status:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        kind.strategy.prepare_update(new, old)
        # A change of the spec increments the generation, which controllers compare with observedGeneration.
        if kind.strategy.counts_generations and counted_content(kind, new) != counted_content(kind, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _update_faults(
        self, kind: Kind, new: JsonObject, old: JsonObject, options: WriteOptions
    ) -> Iterable[FieldError]:
        yield from metadata_update_faults(new["metadata"], old["metadata"])
        if options.subresource == "status":
            yield from kind.strategy.status_faults(new, old)
        # Status writes skip these rules, because the spec may have been accepted by older rules.
        else:
            yield from kind.strategy.faults(new)
            yield from kind.strategy.update_faults(new, old)

    def _judge(self, kind: Kind, item: JsonObject, found: Iterable[FieldError]) -> None:
        # A fault may be found twice, because rules for creation also apply to updates; it is reported once.
        every = list(dict.fromkeys([*kind.metadata_faults(item), *found]))
        if every:
            raise invalid(kind, item["metadata"]["name"], every)

    def _deleted(self, kind: Kind, item: JsonObject, old: JsonObject, options: DeleteOptions) -> Stored:
        if options.dry_run:
            return kind.view(Stored(encode(item), item))
        return kind.view(self._store.commit(kind.collection, ChangeType.DELETED, item, old))

    def _commit(
        self,
        kind: Kind,
        type_: ChangeType,
        item: JsonObject,
        previous: JsonObject | None,
        options: WriteOptions,
    ) -> Stored:
        # A dry run executes all steps up to here, so that it fails exactly if the real request would.
        if options.dry_run:
            return Stored(encode(item), item)
        kept = kind.kept(item)
        stored = self._store.commit(kind.collection, type_, kept, previous)
        return kind.view(stored)


def _current(kind: Kind, namespace: str, name: str) -> Stored:
    """Return the object in the stored version. Raises ApiError (404)."""
    stored = kind.collection.find(namespace, name)
    if stored is None:
        raise not_found(kind, name)
    return stored


def _scheduled(status: JsonObject, now: str) -> JsonObject:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    others = [each for each in status.get("conditions", ()) if each["type"] != "PodScheduled"]
    return {**status, "conditions": [*others, condition]}


def _reset(kind: Kind, options: WriteOptions) -> Sequence[str]:
    strategy = kind.strategy
    return strategy.reset_by_status if options.subresource == "status" else strategy.reset_by_main
