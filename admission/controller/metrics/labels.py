"""Custom labels of metrics, and which LocalQueues have metrics at all.

A label or annotation of a ClusterQueue, LocalQueue, Cohort or Workload becomes the label `custom_<name>` of
that object's metrics, so that a dashboard can sum by team without a join. The values are those of the latest
version of the object. `values` never fails: an unknown object has empty values.
Source: Kueue, KEP 7066 and the Configuration's metrics section.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.config.loading import ControllerConfig
from api.objects.common import Meta, WireSelector
from api.selectors import matches_selector
from api.workload import Workload

# Replaces every value that the setting does not track, so that one label cannot create endless series.
UNTRACKED = "kueue.x-k8s.io/_UNTRACKED_VALUE_"

CLUSTER_QUEUE, LOCAL_QUEUE, COHORT, WORKLOAD = "ClusterQueue", "LocalQueue", "Cohort", "Workload"
# The kinds whose labels and annotations may become labels of their metrics.
LABELLED_KINDS = (CLUSTER_QUEUE, LOCAL_QUEUE, COHORT)
QueueKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomLabel:
    """One setting: the metric label `name` shows the label or annotation `key` of objects of `kind`.

    `tracked` are the values that are shown as they are; None: all.
    """

    name: str
    kind: str
    key: str
    is_annotation: bool = False
    tracked: frozenset[str] | None = None

    def read(self, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> str:
        """Return the value for an object with these labels and annotations; "" if it has none."""
        value = ((annotations if self.is_annotation else labels) or {}).get(self.key, "")
        return value if not value or self.tracked is None or value in self.tracked else UNTRACKED


class MetricLabels:
    """What metrics need to know of queues besides their names.

    `local_queues` False: LocalQueues have no metrics. `selector` restricts metrics to LocalQueues whose
    labels it matches; None matches all.
    """

    def __init__(
        self,
        custom: Iterable[CustomLabel] = (),
        *,
        local_queues: bool = True,
        selector: WireSelector | None = None,
    ) -> None:
        self.has_local_queues = local_queues
        self._selector = selector
        self._custom: dict[str, tuple[CustomLabel, ...]] = {}
        for one in custom:
            self._custom[one.kind] = (*self._custom.get(one.kind, ()), one)
        self._objects: dict[QueueKey, Meta] = {}

    # --- changes from the watch -------------------------------------------------------------------

    def see(self, kind: str, metadata: Meta) -> None:
        """Take the metadata of a queue or cohort as it is now."""
        self._objects[kind, metadata.namespace, metadata.name] = metadata

    def forget(self, kind: str, metadata: Meta) -> None:
        """Drop an object that is gone."""
        self._objects.pop((kind, metadata.namespace, metadata.name), None)

    # --- questions --------------------------------------------------------------------------------

    def uid_of(self, kind: str, namespace: str, name: str) -> str | None:
        """Return the uid of a queue or cohort, None if it is not known."""
        metadata = self._objects.get((kind, namespace, name))
        return metadata.uid if metadata is not None else None

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of the custom labels of this kind's metrics."""
        return tuple(one.name for one in self._custom.get(kind, ()))

    def values(self, kind: str, namespace: str, name: str) -> tuple[str, ...]:
        """Return the values of `names(kind)` for one object."""
        custom = self._custom.get(kind, ())
        if not custom:
            return ()
        metadata = self._objects.get((kind, namespace, name), _UNKNOWN)
        return tuple(one.read(metadata.labels, metadata.annotations) for one in custom)

    def values_of(self, workload: Workload) -> tuple[str, ...]:
        """Return the values of `names("Workload")` for a Workload."""
        return tuple(
            one.read(workload.labels, workload.annotations) for one in self._custom.get(WORKLOAD, ())
        )

    def shows(self, namespace: str, name: str) -> bool:
        """Return whether this LocalQueue has metrics."""
        if not self.has_local_queues or self._selector is None:
            return self.has_local_queues
        metadata = self._objects.get((LOCAL_QUEUE, namespace, name))
        return metadata is not None and matches_selector(self._selector, metadata.labels or {})


_UNKNOWN = Meta()


def metric_labels(config: ControllerConfig) -> MetricLabels:
    """Return the configured labels. As in Kueue, custom labels need the gate CustomMetricLabels."""
    metrics = config.kueue.metrics
    selector = metrics.local_queue_metrics.local_queue_selector
    wanted = metrics.custom_labels if config.kueue.feature_gates.get("CustomMetricLabels") else ()
    return MetricLabels(
        (
            CustomLabel(
                name=f"custom_{one.name}",
                kind=one.source_kind,
                key=one.source_annotation_key or one.source_label_key or one.name,
                is_annotation=bool(one.source_annotation_key),
                tracked=None if one.tracked_values is None else frozenset(one.tracked_values),
            )
            for one in wanted
        ),
        local_queues=metrics.local_queue_metrics.enable,
        selector=None if selector is None else selector.to_wire(),
    )
