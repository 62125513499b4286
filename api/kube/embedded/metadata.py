"""The metadata that the system keeps: names it makes, fields it guards, deletions it marks."""

import random
from datetime import UTC, datetime, timedelta
from typing import Final

from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import Kind

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"
_GC_FINALIZERS: Final = {"Orphan": ORPHAN_FINALIZER, "Foreground": FOREGROUND_FINALIZER}

# What generated names are made of: no vowels and no signs that look alike.
_NAME_SIGNS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX_LENGTH = 5
# Any number of 64 bits is a valid grace; dates end with the year 9999.
_MOST_GRACE_SECONDS: Final = 30 * 366 * 86_400
_MAX_GENERATED_BASE = 63 - _NAME_SUFFIX_LENGTH

# What an update cannot touch, whatever the body says.
_FIXED_METADATA: Final = (
    # Labels of a name stay within 63 signs, whatever the base.
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
    """Complete a generated name."""
    base = metadata.get("generateName")
    # A name that is given counts, though generateName stands beside it.
    if not metadata.get("name") and base:
        suffix = "".join(random.choices(_NAME_SIGNS, k=_NAME_SUFFIX_LENGTH))
        metadata["name"] = base[:_MAX_GENERATED_BASE] + suffix


def keep_fixed(new: JsonObject, old: JsonObject) -> None:
    """Keep in `new` what no update may touch."""
    for key in _FIXED_METADATA:
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)


# Status writes do not count generations where status is a subresource of its own.
def counted_content(kind: Kind, item: JsonObject) -> JsonObject:
    """Return what a generation counts the changes of."""
    aside = {"metadata", "status"} if kind.has_status else {"metadata"}
    return {key: value for key, value in item.items() if key not in aside}


def is_same(new: JsonObject, old: JsonObject) -> bool:
    # The cheap question first: the spec of most updates has changed.
    """Whether an update changes nothing but, at most, the times in managedFields."""
    if any(new.get(key) != old.get(key) for key in new.keys() | old.keys() if key != "metadata"):
        return False
    return _timeless(new["metadata"]) == _timeless(old["metadata"])


def _timeless(metadata: JsonObject) -> JsonObject:
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields", ())]
    return {**metadata, "managedFields": entries}


def is_finished(item: JsonObject) -> bool:
    """Whether an object in deletion has nothing left that holds it."""
    metadata = item["metadata"]
    is_due = bool(metadata.get("deletionTimestamp")) and not metadata.get("deletionGracePeriodSeconds")
    return is_due and not metadata.get("finalizers")


def set_propagation(metadata: JsonObject, asked: str | None, default: str) -> None:
    # With a grace left it is on its way, but not finished.
    """Turn how dependents are to fare into the finalizer that the garbage collector looks for."""
    finalizers = [each for each in metadata.get("finalizers", ()) if each not in _GC_FINALIZERS.values()]
    was_set = [each for each in metadata.get("finalizers", ()) if each in _GC_FINALIZERS.values()]
    # Deleted a second time without saying how: what was said before stands.
    if asked is None and was_set:
        return
    if finalizer := _GC_FINALIZERS.get(asked or default):
        finalizers.append(finalizer)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def mark_deleted(metadata: JsonObject, grace: int) -> None:
    """Note that the object is to go after so many seconds; an earlier end that was set before stands."""
    left = metadata.get("deletionGracePeriodSeconds")
    # Only ever sooner: a second delete may shorten the grace and not lengthen it.
    if metadata.get("deletionTimestamp") and left is not None and grace >= left:
        return
    # The real server counts a deletion as a change of the object.
    if metadata.get("generation"):
        metadata["generation"] += 1
    due = datetime.now(UTC) + timedelta(seconds=min(grace, _MOST_GRACE_SECONDS))
    metadata["deletionTimestamp"] = due.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata["deletionGracePeriodSeconds"] = grace
