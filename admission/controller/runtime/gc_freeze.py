"""Settings for Python's cyclic garbage collector: which objects it need not look at.

The cluster in memory is hundreds of thousands of objects that live for hours and form no cycles. With its
defaults the collector walks through all of them again and again; with 15,000 Workloads each walk stops the
event loop for 200 ms.
"""

from __future__ import annotations

import gc

# Allocations minus deallocations before the youngest generation is collected, then how many collections of
# one generation precede one of the next. Reference counting frees the objects of a scheduling cycle long
# before that. A collection takes 0.1 to 1 microsecond per object that it looks at, and what a burst brings
# stays alive: the second generation has a tenth of a million objects when it is collected, so that no stop
# takes 50 ms. With ten times as many a burst of 100,000 Workloads had stops of 150 ms.
_THRESHOLDS = (10_000, 10, 1_000)


def stop_collector() -> None:
    """Collect once and exempt all objects that exist now; then collect nothing until it starts again.

    To be called before the cluster is in memory, while a collection looks at little more than modules.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def keep_collector_off_what_lives_long() -> None:
    """Exempt all objects that exist now, and collect later ones at a low frequency.

    Without a collection, which would stop the event loop for as long as it looks at the whole cluster: a
    second at 100,000 Workloads. Of two million objects of the first lists it found 62 to be garbage.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_THRESHOLDS)
