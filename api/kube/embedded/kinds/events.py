"""Events, which are served in two groups that show the same objects with different field names.

The collection stores the core form; events.k8s.io/v1 is a view of it. So an event that is written through one
group is also visible through the other, which `kubectl describe` may read.

Source: k8s.io/kubernetes, pkg/apis/events/v1/conversion.go.
"""

from collections.abc import Mapping
from typing import Final

from api.kube.embedded.apply.schema import JsonObject

EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
# Names of fields in the view, by their names in the core form; all other fields have the same name.
_NAMES: Final[Mapping[str, str]] = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES: Final[Mapping[str, str]] = {view: core for core, view in _NAMES.items()}


def to_core_event(event: JsonObject) -> JsonObject:
    """Return an events.k8s.io/v1 Event in the core form."""
    return _renamed(event, _CORE_NAMES, "v1")


def to_events_event(event: JsonObject) -> JsonObject:
    """Return a core Event in the events.k8s.io/v1 form."""
    return _renamed(event, _NAMES, "events.k8s.io/v1")


def _renamed(event: JsonObject, names: Mapping[str, str], api_version: str) -> JsonObject:
    return {names.get(key, key): value for key, value in event.items()} | {"apiVersion": api_version}
