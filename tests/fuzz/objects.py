"""Objects of the cluster that break rules, or are not even objects: the rules, the conversion, the intake.

An API server with Berth's CRDs would refuse many of them. One that was installed with other CRDs would not,
and Jobs, pods and nodes are the cluster's own.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from api.definitions.conversion import convert
from api.validation import validate, validate_update
from api.workload import WorkloadKey
from tests.admission.controller.known import Known
from tests.fuzz.inputs import broken_bytes, changed, to_json
from tests.fuzz.samples import cluster, good_cluster, good_workload, manifests
from tests.fuzz.target import Target

Object = dict[str, Any]
_CLUSTER = cluster()
# What tells which reader an object goes to, and at which place.
_FIXED = (("kind",), ("apiVersion",), ("metadata", "name"), ("metadata", "namespace"))
_NOW = 1_790_000_000.0
_MOST_CYCLES = 20


def _rules(obj: Object) -> None:
    """Check that an object is judged, alone and as a change in both directions."""
    written = _read(obj)
    if written is None:
        return
    for fault in validate(written):
        assert str(fault), f"a fault without a sentence in {written}"
    whole = next(one for one in manifests() if one["kind"] == obj["kind"])
    validate_update(whole, written)
    validate_update(written, whole)


def _conversion(obj: Object) -> None:
    old = {**obj, "apiVersion": str(obj["apiVersion"]).replace("v1beta2", "v1beta1")}
    written = _read(old)
    if written is not None:
        convert(written)


def _read(obj: Object) -> Object | None:
    """Return the object as JSON holds it; None for one that is nested too deep, which no reader lets in."""
    try:
        found: Object = json.loads(to_json(obj))
    except RecursionError:
        return None
    return found


def _intake(given: tuple[str, bytes]) -> None:
    """Check that a controller takes an object in, decides, and admits the Workload that fits beside it."""
    kind, raw = given
    known = Known(*good_cluster()[:-1], settings=_SETTINGS)
    for obj in _CLUSTER:
        known.tell(obj)
    known.tell_bytes(kind, raw)
    known.tell(good_workload())
    engine = known.cluster_state.engine
    for number in range(_MOST_CYCLES):
        now = _NOW + number
        engine.overadmission.evict_excess(now=now)
        engine.second_pass(now=now)
        while engine.settle(now=now):
            pass
        if not engine.wake_heads(now=now):
            break
        engine.cycle(now=now)
    engine.explain(100)
    engine.validate()
    engine.statistics()
    # No server has an object without a name, which could stand for all that name none.
    if has_name(raw):
        assert engine.workloads.is_holding(WorkloadKey("good", "good")), "the good Workload waits"


def has_name(raw: bytes) -> bool:
    """Return whether the bytes are an object with a name."""
    try:
        return bool(json.loads(raw)["metadata"]["name"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


_OBJECTS = changed(_CLUSTER, fixed=_FIXED)
_BYTES = st.one_of(
    _OBJECTS.map(lambda obj: (obj["kind"], to_json(obj))),
    st.sampled_from(_CLUSTER).flatmap(
        lambda obj: st.tuples(st.just(obj["kind"]), broken_bytes(st.just(to_json(obj))))
    ),
)
_SETTINGS = ClusterStateSettings(with_pods=True)

TARGETS = (
    Target(
        name="rules of objects", inputs=changed(manifests(), fixed=_FIXED[:2]), check=_rules, examples=300
    ),
    Target(name="conversion", inputs=changed(manifests(), fixed=_FIXED[:2]), check=_conversion),
    Target(name="intake of objects", inputs=_BYTES, check=_intake, examples=200),
)
