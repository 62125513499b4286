"""The table of owners: all kinds beside batch/v1 Job that are started and stopped as a whole.

The rows of the configuration are the same for a whole process, so they are set once, before any object is
read: `kind_of` is asked in too many places to be handed to each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api.jobs.owners.appwrapper import APP_WRAPPER
from api.jobs.owners.external import ExternalKind, row_of
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.kubeflow import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.owners.spark import SPARK_APPLICATION
from api.jobs.owners.trainjob import TRAIN_JOB

OWNER_KINDS: tuple[OwnerKind, ...] = (
    JOB_SET,
    TRAIN_JOB,
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    MPI_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    SPARK_APPLICATION,
    APP_WRAPPER,
)

SOURCES: tuple[Source, ...] = tuple(source for row in OWNER_KINDS for source in row.sources)
# What the configuration says of other kinds, and the rows of that by kind.
_described: list[ExternalKind] = []
_external: dict[str, OwnerKind] = {}
_BY_KIND: Mapping[str, OwnerKind] = {row.kind: row for row in OWNER_KINDS}


def set_external(kinds: Iterable[ExternalKind]) -> tuple[OwnerKind, ...]:
    """Make rows of what the configuration says of other kinds, in place of all earlier ones; return them."""
    _described[:] = kinds
    _external.clear()
    _external.update({one.kind: row_of(one) for one in _described})
    return tuple(_external.values())


def external() -> tuple[ExternalKind, ...]:
    """Return what the configuration says of other kinds."""
    return tuple(_described)


def row_of_kind(kind: str) -> OwnerKind | None:
    """Return the row of a kind by its name alone, which no two have in common; None if there is none."""
    return _BY_KIND.get(kind) or _external.get(kind)


def kind_of(api_version: str, kind: str) -> OwnerKind | None:
    """Return the row of the kind that an owner reference names, in any version; None if there is none."""
    row = row_of_kind(kind)
    return row if row is not None and row.group == api_version.rpartition("/")[0] else None
