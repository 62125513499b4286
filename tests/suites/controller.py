"""The controller of a suite: `berth controller`, without the parts that the suite leaves out of Kueue.

Several suites leave out Kueue's scheduler and write admissions themselves: for them the queues have no heads.
Some run webhooks or the reconcilers of jobs alone, without those of queues and Workloads: for them no object
gets a finalizer, and no Workload is looked at, or no job and no pod. One gives up pods
without the minute's delay. Berth has no such modes.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from admission.cache.trees_to_try import TreesToTry
from admission.cli.__main__ import main
from admission.controller.cluster_state.ending_pods import EndingPods
from admission.controller.cluster_state.finalizers import Finalizers
from admission.controller.loop import reconcile_queue
from admission.engine.overadmission_check import OveradmissionCheck
from admission.reconcile.workload.context import LifecycleResult

UNSCHEDULED = "BERTH_SUITES_UNSCHEDULED"
WITHOUT_CORE = "BERTH_SUITES_WITHOUT_CORE"
WITHOUT_JOBS = "BERTH_SUITES_WITHOUT_JOBS"
WITHOUT_DELAY = "BERTH_SUITES_WITHOUT_DELAY"
_QUIET = ("http", "extender", "visibility")


def _without_scheduler() -> None:
    def has_heads(*_: Any) -> bool:
        return False

    def pop_heads(*_: Any) -> list[Any]:
        return []

    # The suite admits, and gives no quota to what it admits.
    def evict_excess(*_: Any, **__: Any) -> tuple[()]:
        return ()

    for replaced in (has_heads, pop_heads):
        setattr(TreesToTry, replaced.__name__, replaced)
    setattr(OveradmissionCheck, evict_excess.__name__, evict_excess)


def _without_core() -> None:
    def take_due(*_: Any) -> tuple[()]:
        return ()

    def reconcile_workload(*_: Any, **__: Any) -> LifecycleResult:
        return LifecycleResult()

    setattr(Finalizers, take_due.__name__, take_due)
    setattr(reconcile_queue, reconcile_workload.__name__, reconcile_workload)


def _without_jobs() -> None:
    def reconcile_queued(*_: Any, **__: Any) -> tuple[()]:
        return ()

    def reconcile_pods(*_: Any, **__: Any) -> tuple[()]:
        return ()

    for replaced in (reconcile_queued, reconcile_pods):
        setattr(reconcile_queue, replaced.__name__, replaced)


if __name__ == "__main__":
    if os.environ.get(UNSCHEDULED):
        _without_scheduler()
    if os.environ.get(WITHOUT_CORE):
        _without_core()
    if os.environ.get(WITHOUT_JOBS):
        _without_jobs()
    if os.environ.get(WITHOUT_DELAY):
        EndingPods.delay_seconds = 0.001
    ports = [flag for name in _QUIET for flag in (f"--{name}-port", "-1")]
    sys.exit(main(["controller", *ports, "--log-level", "debug", *sys.argv[1:]]))
