"""Files that commands read, and what Redis holds: one sentence and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from queues.reservations.plan import PlanTable, StoredPlan
from queues.store import encoding
from queues.store.plan_rows import read_rows
from tests.fuzz.inputs import broken_bytes, changed, texts, to_json
from tests.fuzz.samples import cluster, good_cluster
from tests.fuzz.target import Target
from tests.queues.reservation_builders import make_entry, make_reservation

# A command has no lease to lose: parsing YAML in Python takes 1.2 s for 5,000 levels.
_MOST_SECONDS = 10.0
_FAULT = "this is a fault in Berth"


def _run(*arguments: str, stdin: bytes = b"") -> None:
    """Run a command, which may answer or refuse."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    # By hand: hypothesis runs many examples within one test, so that no fixture can.
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8", errors="surrogateescape")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    finally:
        sys.stdin = before
    said = err.getvalue()
    assert _FAULT not in said, said
    assert "Traceback" not in said + out.getvalue(), said
    assert code in (ExitCode.DONE, ExitCode.DOES_NOT_HOLD, ExitCode.WRONG_USAGE), f"exit code {code}: {said}"
    assert code != ExitCode.WRONG_USAGE or said or '"error"' in out.getvalue(), "refused without a sentence"


def _run_on_file(arguments: tuple[str, ...], suffix: str, content: bytes) -> None:
    """Run a command whose last argument is the path of a file with this content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"given{suffix}"
        path.write_bytes(content)
        _run(*arguments, str(path))


# --- manifests, cases, traces, configurations ----------------------------------------------------------

_MANIFESTS = changed([{"apiVersion": "v1", "kind": "List", "items": [*good_cluster(), *cluster()]}])
_CASES = changed(
    [{"name": "c", "now": "2026-01-15T12:00:00Z", "fairSharing": True, "objects": list(good_cluster())}]
)
_HEADER = ["job_id", "user", "num_gpu", "submit_time", "duration", "job_type", "reservation"]
_CELL = st.one_of(
    st.sampled_from(("1", "8", "0", "2.5", "best", "nlp", "-1", "1e9", "nan", '"', "1,2")), texts
)
_ROWS = st.lists(st.lists(_CELL, min_size=4, max_size=8), min_size=1, max_size=4)
_CONFIGURATION: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": "berth-system",
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    "integrations": {"frameworks": ["batch/job", "pod"], "labelKeysToCopy": ["team"]},
    "leaderElection": {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"},
    "waitForPodsReady": {"timeout": "10m", "requeuingStrategy": {"backoffBaseSeconds": 60}},
    "featureGates": {"TASProfileMixed": True},
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "5m", "usageSamplingInterval": "5m"},
    "metrics": {"customLabels": [{"name": "team", "sourceKind": "Workload"}]},
    "resources": {"transformations": [{"input": "a.com/b", "strategy": "Replace", "outputs": {"c": "2"}}]},
    "objectRetentionPolicies": {"workloads": {"afterFinished": "1h"}},
}
_BERTH_CONFIGURATION: dict[str, Any] = {
    "apiVersion": "berth.dev/v1alpha1",
    "kind": "ControllerConfig",
    "shard": "default",
    "lease": {"durationSeconds": 15, "renewSeconds": 2, "deadlineSeconds": 10},
    "execution": {"maxInFlight": 128, "maxUnconfirmed": 256, "progressDeadlineSeconds": 60},
    "events": {"perSecond": 20, "burst": 200},
    "extender": {"requiredTopologies": ["nvlink"], "minGpuMemoryGb": 8},
}


def _trace(rows: Iterable[Iterable[str]]) -> bytes:
    lines = [",".join(_HEADER), *(",".join(row) for row in rows)]
    return "\n".join(lines).encode(errors="surrogatepass")


def _either(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Return the values as JSON, sometimes with broken bytes."""
    whole = values.map(to_json)
    return st.one_of(whole, whole, broken_bytes(whole))


# --- what Redis holds ----------------------------------------------------------------------------------

_ROW_VALUES = (
    [[1.0, 2.0], 5.0, 1.0],
    [[9.0, "u", 5.0]],
    msgspec.to_builtins(make_reservation()),
    msgspec.to_builtins(make_entry()),
)


def _stored(row: bytes) -> None:
    """Check that a row is read or named in each table, and read or refused as a reservation or log entry."""
    for table in PlanTable:
        fields = ("team/w", "team/w/uid", "a/b/c", "node", "", "\udcff")
        plan, bad = read_rows(StoredPlan(version=None, rows={table: dict.fromkeys(fields, row)}))
        assert len(plan.table(table)) + len(bad) >= 1
        assert all(one.message for one in bad)
    for read in (encoding.decode, encoding.decode_entry):
        with contextlib.suppress(ValueError):
            read(row)


def _packed(head: bytes, value: Any) -> bytes:
    return head + msgspec.msgpack.encode(value)


_HEADS = st.sampled_from((b"", b"1\n", b"1 5 r1\n", b"2\n", b"1", b"99999999999999999999\n", b"unsigned"))
_PLAIN = changed(_ROW_VALUES).map(lambda value: msgspec.json.decode(_finite(value)))
_STORED = st.builds(_packed, _HEADS, _PLAIN)


def _finite(value: Any) -> bytes:
    """Return JSON that MessagePack can hold too: whole numbers of 64 bits."""
    return msgspec.json.encode(_bounded(value))


def _bounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).encode(errors="replace").decode(): _bounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_bounded(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**63 - 1))
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


TARGETS = (
    Target(
        name="berth decide -f",
        inputs=_either(_MANIFESTS),
        check=partial(_run_on_file, ("decide", "-f"), ".json"),
        most_seconds=_MOST_SECONDS,
        examples=60,
    ),
    Target(
        name="berth decide --jsonl",
        inputs=_either(_CASES),
        check=lambda given: _run("decide", "--jsonl", stdin=given),
        most_seconds=_MOST_SECONDS,
        examples=60,
    ),
    Target(
        name="berth convert -f",
        inputs=_either(_MANIFESTS),
        check=partial(_run_on_file, ("convert", "-f"), ".yaml"),
        most_seconds=_MOST_SECONDS,
        examples=40,
    ),
    Target(
        name="berth simulate --jobs",
        inputs=st.one_of(_ROWS.map(_trace), broken_bytes(_ROWS.map(_trace))),
        check=partial(_run_on_file, ("simulate", "--policy", "fifo", "--nodes", "1x8", "--jobs"), ".csv"),
        most_seconds=_MOST_SECONDS,
        examples=40,
    ),
    Target(
        name="the configuration file",
        inputs=_either(changed([_CONFIGURATION, _BERTH_CONFIGURATION])),
        check=partial(_run_on_file, ("decide", "--jsonl", "--config"), ".yaml"),
        most_seconds=_MOST_SECONDS,
        examples=150,
    ),
    Target(
        name="values in Redis", inputs=st.one_of(_STORED, broken_bytes(_STORED)), check=_stored, examples=200
    ),
)
