"""The table of owners: all kinds beside batch/v1 Job that are started and stopped as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from api.jobs.owners.appwrapper import APP_WRAPPER
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

BY_KIND: Mapping[str, OwnerKind] = {row.kind: row for row in OWNER_KINDS}
_BY_GROUP_KIND: Mapping[tuple[str, str], OwnerKind] = {(row.group, row.kind): row for row in OWNER_KINDS}
SOURCES: tuple[Source, ...] = tuple(source for row in OWNER_KINDS for source in row.sources)


def kind_of(api_version: str, kind: str) -> OwnerKind | None:
    """Return the row of the kind that an owner reference names, in any version; None if there is none."""
    return _BY_GROUP_KIND.get((api_version.rpartition("/")[0], kind))
