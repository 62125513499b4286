"""Metadata that the server maintains: generated names, immutable fields, deletion marks."""

import random
import time
from typing import Final

from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import Kind
from api.parsing.times import to_rfc3339

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"
_GC_FINALIZERS: Final = {"Orphan": ORPHAN_FINALIZER, "Foreground": FOREGROUND_FINALIZER}

# Characters of generated names: no vowels and no characters that look alike.
_NAME_SIGNS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX_LENGTH = 5
# Generated names stay within the 63 characters of a label value, however long their base is.
_MAX_GENERATED_BASE = 63 - _NAME_SUFFIX_LENGTH

# Fields that an update cannot change, whatever the body contains.
_FIXED_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def complete_name(metadata: JsonObject) -> None:
    """Set the name from generateName, if no name is given."""
    base = metadata.get("generateName")
    # A given name takes precedence over generateName.
    if not metadata.get("name") and base:
        suffix = "".join(random.choices(_NAME_SIGNS, k=_NAME_SUFFIX_LENGTH))
        metadata["name"] = base[:_MAX_GENERATED_BASE] + suffix


def keep_fixed(new: JsonObject, old: JsonObject) -> None:
    """Set the immutable metadata of `new` to that of `old`."""
    for key in _FIXED_METADATA:
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)


def counted_content(kind: Kind, item: JsonObject) -> JsonObject:
    """Return the part of the object whose changes increment the generation."""
    # Status writes do not count if the status is a subresource.
    aside = {"metadata", "status"} if kind.has_status else {"metadata"}
    return {key: value for key, value in item.items() if key not in aside}


def is_same(new: JsonObject, old: JsonObject) -> bool:
    """Return whether an update changes nothing except, at most, the times in managedFields."""
    # The cheaper comparison first: most updates change the spec or the status.
    if any(new.get(key) != old.get(key) for key in new.keys() | old.keys() if key != "metadata"):
        return False
    return _timeless(new["metadata"]) == _timeless(old["metadata"])


def _timeless(metadata: JsonObject) -> JsonObject:
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields", ())]
    return {**metadata, "managedFields": entries}


def is_finished(item: JsonObject) -> bool:
    """Return whether an object that is being deleted has no grace period and no finalizer left."""
    metadata = item["metadata"]
    is_due = bool(metadata.get("deletionTimestamp")) and not metadata.get("deletionGracePeriodSeconds")
    return is_due and not metadata.get("finalizers")


def set_propagation(metadata: JsonObject, asked: str | None, default: str) -> None:
    """Replace the propagation policy by the finalizer that the garbage collector evaluates."""
    finalizers = [each for each in metadata.get("finalizers", ()) if each not in _GC_FINALIZERS.values()]
    was_set = [each for each in metadata.get("finalizers", ()) if each in _GC_FINALIZERS.values()]
    # A second deletion without a policy keeps that of the first.
    if asked is None and was_set:
        return
    if finalizer := _GC_FINALIZERS.get(asked or default):
        finalizers.append(finalizer)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def mark_deleted(metadata: JsonObject, grace: int) -> None:
    """Mark the object for deletion after `grace` seconds; an earlier deletion time is kept."""
    left = metadata.get("deletionGracePeriodSeconds")
    # A second deletion may shorten the grace period but not extend it.
    if metadata.get("deletionTimestamp") and left is not None and grace >= left:
        return
    # In the real server, a deletion counts as a change of the object.
    if metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = to_rfc3339(time.time() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
