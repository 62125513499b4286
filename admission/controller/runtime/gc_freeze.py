"""Settings for Python's cyclic garbage collector: which objects it need not look at.

The cluster in memory is hundreds of thousands of objects that live for hours and form no cycles. With its
defaults the collector walks through all of them again and again; with 15,000 Workloads each walk stops the
event loop for 200 ms.
"""

from __future__ import annotations

import gc

# Allocations minus deallocations before the youngest generation is collected, then how many collections of
# one generation precede one of the next. Reference counting frees the objects of a scheduling cycle long
# before that. A collection takes about a microsecond per young object; a threshold of 50,000 caused the
# longest of all stops.
_THRESHOLDS = (10_000, 100, 100)


def keep_collector_off_what_lives_long() -> None:
    """Collect once, exempt all objects that exist now, and collect later ones at a low frequency."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_THRESHOLDS)
