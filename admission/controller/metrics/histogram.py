"""A histogram of the library whose series are light.

A thousand queues have eight thousand series of histograms with 130,000 buckets, and for each bucket the
library has an object with a lock: 39 MB and 300 ms, against 5 MB and 20 ms here. Series are written by the
event loop alone. A scrape reads them in a thread, and may see counts and a sum that are one observation
apart, as with the library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, cast

import prometheus_client
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

# As Go prints it: +Inf, and large numbers with an exponent.
number_text: Callable[[float], str] = floatToGoString


class HistogramSeries:
    """The observations with one set of label values: how many are in each bucket alone, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count an amount in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    def _samples(self) -> Iterable[Sample]:
        """Return the samples for the library's own `collect`, which asks its series by this name."""
        count = 0
        for bound, count in zip(self.bounds, accumulate(self.counts), strict=True):
            yield Sample("_bucket", {"le": number_text(bound)}, float(count), None, None)
        yield Sample("_count", {}, float(count), None, None)
        # A sum that may fall is no counter, and the library leaves it out as well.
        if self.bounds[0] >= 0:
            yield Sample("_sum", {}, self.total, None, None)


class Histogram(prometheus_client.Histogram):
    """A histogram with at least one label."""

    def labels(self, *values: str, **_: Any) -> HistogramSeries:  # type: ignore[override]
        """Return the series with these label values, in the order of the labels' names."""
        series = cast(dict[tuple[str, ...], HistogramSeries], self._metrics)
        known = series.get(values)
        if known is not None:
            return known
        if len(values) != len(self._labelnames):
            raise ValueError(f"{self._name} has the labels {self._labelnames}, and got the values {values}")
        # A scrape copies the mapping under this lock.
        with self._lock:
            return series.setdefault(values, HistogramSeries(tuple(self._upper_bounds)))
