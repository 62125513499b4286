"""Reads traces of real clusters: when each Job was submitted, its number of GPUs, and its run time.

The format is that of the public Philly trace in its usual form, a CSV file with a header and
one Job per line:

    column        meaning here
    job_id        optional: the Job's name; the default is the line number
    user          the tenant: one namespace, one LocalQueue and one ClusterQueue each
    num_gpu       GPUs of the whole gang; 0 for a Job without GPUs
    submit_time   minutes since any start; `first_submitted` moves the first Job to 0
    duration      minutes that the Job runs once started
    job_type      optional: "best" may be preempted by the others, which have a higher priority; read only by
                  policies that preempt
    reservation   optional: the reservation of the calendar that the Job joins, empty for none
    gpu_model, workload_type, checkpoint_minutes
                  optional, read where the nodes have flavors: the model that it needs, what it is (training,
                  inference, batch), and how often it saves a checkpoint; empty for none

Other columns are ignored, and the order of the lines does not matter. Only `read_trace` reads a file; all
other functions are pure.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from api.jobs.checkpoint_annotations import WORKLOAD_TYPES
from api.parsing.decimals import finite_number

EXPECTED_COLUMNS = ("user", "num_gpu", "submit_time", "duration")
_ID_COLUMN = "job_id"
_SECONDS_PER_MINUTE = 60.0
# Limits against invalid numbers: no known Job has a hundred thousand GPUs or runs for a century.
_MAX_GPUS = 100_000
_MAX_MINUTES = 100 * 366 * 24 * 60.0
# How many columns of an unknown header an error quotes.
_MAX_QUOTED_COLUMNS = 12


class TraceError(ValueError):
    """An unusable trace. The message names the file, the line, the value and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One Job of a trace. Times are seconds; `submitted_at` counts from the trace's own beginning."""

    id: str
    tenant: str
    gpus: int
    submitted_at: float
    duration_seconds: float
    is_preemptible: bool = False
    reservation: str = ""
    gpu_model: str = ""
    workload_type: str = ""
    checkpoint_seconds: float | None = None


def read_trace(path: Path) -> tuple[TraceJob, ...]:
    """Return the Jobs of a CSV file in the order of its lines. Raises TraceError if it is unusable."""
    try:
        # Use utf-8-sig, because spreadsheets write a byte order mark before the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return parse_trace(lines, source=str(path))
    except FileNotFoundError:
        raise TraceError(f"there is no file {path}; give a CSV file of Jobs") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a text file in UTF-8: {error.reason}") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error


def parse_trace(lines: Iterable[str], *, source: str) -> tuple[TraceJob, ...]:
    """Return the Jobs of CSV `lines`, which begin with the header, in their order. Errors name `source`.

    Raises TraceError for missing columns, an invalid number, a duplicate id, or a trace without Jobs.
    """
    reader = csv.DictReader(lines, restval="")
    try:
        _check_columns(reader.fieldnames or (), source)
        jobs = [_to_job(row, f"{source} line {reader.line_num}", reader.line_num) for row in reader]
    except csv.Error as error:
        raise TraceError(f"{source} line {reader.line_num} is not CSV: {error}") from error
    if not jobs:
        raise TraceError(f"{source} has a heading and no Job")
    _check_ids(jobs, source)
    return tuple(jobs)


def first_submitted(jobs: Sequence[TraceJob], limit: int | None) -> tuple[TraceJob, ...]:
    """Return the first `limit` Jobs by submit time (None: all), shifted so that the first is at 0.

    Jobs submitted in the same minute keep the file's order.
    """
    chosen = sorted(jobs, key=lambda job: job.submitted_at)[:limit]
    if not chosen:
        return ()
    beginning = chosen[0].submitted_at
    return tuple(replace(job, submitted_at=job.submitted_at - beginning) for job in chosen)


def tenants(jobs: Iterable[TraceJob]) -> tuple[str, ...]:
    """Return the tenants' names, sorted."""
    return tuple(sorted({job.tenant for job in jobs}))


def _check_columns(found: Sequence[str], source: str) -> None:
    missing = [column for column in EXPECTED_COLUMNS if column not in found]
    if not missing:
        return
    if not found:
        raise TraceError(f"{source} is empty; expected a heading with {', '.join(EXPECTED_COLUMNS)}")
    quoted = ", ".join(found[:_MAX_QUOTED_COLUMNS]) + (", …" if len(found) > _MAX_QUOTED_COLUMNS else "")
    raise TraceError(
        f"{source} has the columns {quoted}; expected {', '.join(EXPECTED_COLUMNS)}"
        f" ({', '.join(missing)} missing)"
    )


def _to_job(row: Mapping[str, str], place: str, line: int) -> TraceJob:
    tenant = row["user"].strip()
    if not tenant:
        raise TraceError(f"{place}: user is empty; expected the tenant's name")
    return TraceJob(
        id=(row.get(_ID_COLUMN) or "").strip() or str(line),
        tenant=tenant,
        gpus=_gpus(row["num_gpu"], place),
        submitted_at=_minutes(row, "submit_time", place),
        duration_seconds=_minutes(row, "duration", place),
        is_preemptible=(row.get("job_type") or "").strip().lower() == "best",
        reservation=(row.get("reservation") or "").strip(),
        gpu_model=(row.get("gpu_model") or "").strip(),
        workload_type=_workload_type((row.get("workload_type") or "").strip(), place),
        checkpoint_seconds=_minutes(row, "checkpoint_minutes", place) or None
        if row.get("checkpoint_minutes")
        else None,
    )


def _workload_type(text: str, place: str) -> str:
    if text and text not in WORKLOAD_TYPES:
        raise TraceError(f"{place}: workload_type is {text!r}; expected one of {', '.join(WORKLOAD_TYPES)}")
    return text


def _gpus(text: str, place: str) -> int:
    number = finite_number(text)
    if number is None or not number.is_integer() or not 0 <= number <= _MAX_GPUS:
        raise TraceError(f"{place}: num_gpu is {text!r}; expected a whole number of GPUs, 0 or more")
    return int(number)


def _minutes(row: Mapping[str, str], column: str, place: str) -> float:
    """Return a column of minutes in seconds."""
    number = finite_number(row[column])
    if number is None or not 0 <= number <= _MAX_MINUTES:
        raise TraceError(f"{place}: {column} is {row[column]!r}; expected minutes, 0 or more")
    return number * _SECONDS_PER_MINUTE


def _check_ids(jobs: Iterable[TraceJob], source: str) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            raise TraceError(f"{source}: {_ID_COLUMN} {job.id!r} is given to two Jobs; each needs its own")
        seen.add(job.id)
