"""Consequences of deletions: dependents of a deleted owner, contents of a namespace, kinds of a CRD.

In a real cluster, controllers that watch the API server handle them. Here the store reports every change, and
the consequences are handled right after the request that caused them, always in the same order.

Source: k8s.io/kubernetes, pkg/controller/garbagecollector and pkg/controller/namespace.
"""

import asyncio
from collections import deque
from typing import Final

from api.kube.embedded.apply.errors import InvalidObject
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.crds import GROUP, PLURAL, CustomKinds
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.metadata import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from api.kube.embedded.options import DeleteOptions, WriteOptions
from api.kube.embedded.store import ChangeType, Collection, ObjectStore
from api.kube.embedded.verbs import Transform, Verbs

_MANAGER: Final = "kube-controller-manager"
_Key = tuple[Collection, str, str]


class GarbageCollector:
    """Deletes objects as a consequence of other deletions."""

    def __init__(self, store: ObjectStore, catalog: Catalog, verbs: Verbs, customs: CustomKinds) -> None:
        self._store = store
        self._catalog = catalog
        self._verbs = verbs
        self._customs = customs
        self._owners: dict[str, _Key] = {}
        self._dependents: dict[str, set[_Key]] = {}
        self._waiting: deque[tuple[Collection, ChangeType, JsonObject]] = deque()
        self._is_scheduled = False
        store.listen(self._note)

    def _note(
        self, collection: Collection, type_: ChangeType, item: JsonObject, previous: JsonObject | None
    ) -> None:
        """Index the change immediately; handle its consequences after the request."""
        metadata = item["metadata"]
        uid, is_gone = metadata["uid"], type_ is ChangeType.DELETED
        key = (collection, metadata.get("namespace", ""), metadata["name"])
        if is_gone:
            self._owners.pop(uid, None)
        else:
            self._owners[uid] = key
        self._index(key, _owner_uids(previous), _owner_uids(None if is_gone else item))
        if collection.group == GROUP and collection.plural == PLURAL:
            # Immediately, so that the kind is served when the request that creates the CRD is answered.
            (self._customs.forget if is_gone else self._customs.define)(item)
        if is_gone or metadata.get("deletionTimestamp") or metadata.get("ownerReferences"):
            # After the request, so that its response shows the object as the request left it.
            self._waiting.append((collection, type_, item))
            self._schedule()

    def _index(self, key: _Key, before: set[str], after: set[str]) -> None:
        for uid in before - after:
            dependents = self._dependents.get(uid, set())
            dependents.discard(key)
            if not dependents:
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(key)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        while self._waiting:
            self._follow(*self._waiting.popleft())

    def _follow(self, collection: Collection, type_: ChangeType, item: JsonObject) -> None:
        metadata = item["metadata"]
        if type_ is ChangeType.DELETED:
            self._owner_gone(metadata["uid"])
            self._may_finish_owners(item)
            self._may_finish_namespace(metadata.get("namespace", ""))
            return
        # The current state is used, because other changes of the same request may have followed.
        current = collection.find(metadata.get("namespace", ""), metadata["name"])
        if current is None or current.item["metadata"]["uid"] != metadata["uid"]:
            return
        if current.item["metadata"].get("deletionTimestamp"):
            self._proceed(collection, current.item)
        elif type_ is ChangeType.ADDED and metadata.get("ownerReferences"):
            self._release(collection, current.item)

    def _proceed(self, collection: Collection, item: JsonObject) -> None:
        """Perform the next step of a deletion that is delayed by a finalizer or by contents."""
        finalizers = item["metadata"].get("finalizers", ())
        # Orphans are released before their owner is deleted; otherwise they would be deleted with it.
        if ORPHAN_FINALIZER in finalizers:
            for key in self._dependents_of(item):
                self._drop_owner(key, item["metadata"]["uid"])
            self._drop_finalizer(collection, item, ORPHAN_FINALIZER)
        elif FOREGROUND_FINALIZER in finalizers:
            self._proceed_foreground(collection, item)
        elif collection.group == "" and collection.plural == "namespaces":
            self._empty_namespace(item["metadata"]["name"])

    def _proceed_foreground(self, collection: Collection, item: JsonObject) -> None:
        # The owner waits only for dependents with blockOwnerDeletion; each of them may be an owner itself.
        uid = item["metadata"]["uid"]
        for dependent in self._dependents_of(item):
            self._delete(dependent, propagation="Foreground" if self._blocks(dependent, uid) else None)
        if not any(self._blocks(dependent, uid) for dependent in self._dependents_of(item)):
            self._drop_finalizer(collection, item, FOREGROUND_FINALIZER)

    def _blocks(self, key: _Key, owner: str) -> bool:
        collection, namespace, name = key
        stored = collection.find(namespace, name)
        references = stored.item["metadata"].get("ownerReferences", ()) if stored else ()
        return any(each["uid"] == owner and each.get("blockOwnerDeletion") for each in references)

    def _may_finish_owners(self, item: JsonObject) -> None:
        for uid in _owner_uids(item):
            if key := self._owners.get(uid):
                collection, namespace, name = key
                stored = collection.find(namespace, name)
                if stored and stored.item["metadata"].get("deletionTimestamp"):
                    self._proceed(collection, stored.item)

    def _owner_gone(self, uid: str) -> None:
        for key in sorted(self._dependents.get(uid, ()), key=_place):
            collection, namespace, name = key
            stored = collection.find(namespace, name)
            if stored is not None:
                self._release(collection, stored.item)

    def _release(self, collection: Collection, item: JsonObject) -> None:
        """Delete a dependent without remaining owners; otherwise remove the references to deleted owners."""
        owners = _owner_uids(item)
        gone = {each["uid"] for each in item["metadata"]["ownerReferences"] if self._is_gone(each)}
        key = (collection, item["metadata"].get("namespace", ""), item["metadata"]["name"])
        # With a remaining owner, the object stays and loses the references to the others.
        if owners and gone == owners:
            self._delete(key, propagation="Background")
        else:
            for uid in sorted(gone):
                self._drop_owner(key, uid)

    def _is_gone(self, reference: JsonObject) -> bool:
        """Return whether an owner does not exist.

        False for kinds that are not served, because it is unknown.
        """
        served = {(kind.api_version, kind.kind) for kind in self._catalog}
        is_known = (reference["apiVersion"], reference["kind"]) in served
        return is_known and reference["uid"] not in self._owners

    def _empty_namespace(self, namespace: str) -> None:
        for collection in self._store.collections():
            for stored in collection.all(namespace):
                key = (collection, namespace, stored.item["metadata"]["name"])
                # Without a grace period, because no kubelet has to stop pods of a deleted namespace here.
                self._delete(key, propagation="Background", grace=0)
        self._may_finish_namespace(namespace)

    def _may_finish_namespace(self, name: str) -> None:
        spaces = self._store.collection("", "namespaces")
        stored = spaces.find("", name)
        if stored is None or not stored.item["metadata"].get("deletionTimestamp"):
            return
        # Objects with finalizers remain; their deletion calls this method again.
        if any(collection.all(name) for collection in self._store.collections() if collection is not spaces):
            return
        if not stored.item["metadata"].get("finalizers"):
            self._store.commit(spaces, ChangeType.DELETED, stored.item, stored.item)

    def _dependents_of(self, item: JsonObject) -> list[_Key]:
        return sorted(self._dependents.get(item["metadata"]["uid"], ()), key=_place)

    def _delete(self, key: _Key, *, propagation: str | None, grace: int | None = None) -> None:
        collection, namespace, name = key
        kind = self._kind(collection)
        stored = collection.find(namespace, name)
        if kind is None or stored is None:
            return
        # A deletion that is already in progress need not be requested again.
        is_waiting = bool(stored.item["metadata"].get("deletionTimestamp")) and grace is None
        if not is_waiting:
            options = DeleteOptions(propagation=propagation, grace_seconds=grace)
            self._verbs.delete(kind, namespace, name, options)

    def _drop_owner(self, key: _Key, uid: str) -> None:
        def change(item: JsonObject) -> JsonObject:
            metadata = dict(item["metadata"])
            left = [each for each in metadata.get("ownerReferences", ()) if each["uid"] != uid]
            metadata["ownerReferences"] = left or None
            return {**item, "metadata": metadata}

        self._update(key, change)

    def _drop_finalizer(self, collection: Collection, item: JsonObject, finalizer: str) -> None:
        def change(item: JsonObject) -> JsonObject:
            metadata = dict(item["metadata"])
            metadata["finalizers"] = [each for each in metadata["finalizers"] if each != finalizer]
            return {**item, "metadata": metadata}

        metadata = item["metadata"]
        self._update((collection, metadata.get("namespace", ""), metadata["name"]), change)

    def _update(self, key: _Key, change: Transform) -> None:
        collection, namespace, name = key
        kind = self._kind(collection)
        if kind is None or collection.find(namespace, name) is None:
            return
        try:
            self._verbs.update(kind, namespace, name, change, WriteOptions(manager=_MANAGER))
        except InvalidObject:
            # The object violates a rule that was added after it was stored, so it cannot be changed.
            return

    def _kind(self, collection: Collection) -> Kind | None:
        versions = self._catalog.versions_of(collection.group, collection.plural)
        return versions[0] if versions else None


def _owner_uids(item: JsonObject | None) -> set[str]:
    references = (item or {}).get("metadata", {}).get("ownerReferences") or ()
    return {reference["uid"] for reference in references}


def _place(key: _Key) -> tuple[str, str, str, str]:
    collection, namespace, name = key
    return collection.group, collection.plural, namespace, name
