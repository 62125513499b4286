"""Charts: the data that page.js draws, as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from admission.answers.items import DecisionItem, PromiseItem
from api.parsing.times import to_seconds

# How many points a chart of counts has at most.
_MOST_POINTS = 60
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400)


def decision_chart(decisions: Sequence[DecisionItem], *, now: float) -> str:
    """Return how many decisions of each kind were made, in steps of time up to now; "" without any."""
    times = [to_seconds(one.at) for one in decisions]
    if not times:
        return ""
    oldest = min(times)
    step = next((one for one in _STEPS if (now - oldest) / one <= _MOST_POINTS), _STEPS[-1])
    count = Counter((one.decision, int(at // step)) for one, at in zip(decisions, times, strict=True))
    steps = range(int(oldest // step), int(now // step) + 1)
    kinds = sorted({one.decision for one in decisions})
    return _chart(
        [number * step for number in steps],
        {kind: [count[kind, number] for number in steps] for kind in kinds},
        unit="",
    )


def promise_chart(promises: Sequence[PromiseItem], *, now: float) -> str:
    """Return how many Workloads will have started as promised, by time; "" without any promise."""
    times = sorted(max(now, to_seconds(one.start_at)) for one in promises)
    if not times:
        return ""
    return _chart([now, *times], {"started as promised": list(range(len(times) + 1))}, unit="Workloads")


def _chart(x: Sequence[float], series: dict[str, list[int]], *, unit: str) -> str:
    shown = [{"label": label, "values": values, "fill": len(series) == 1} for label, values in series.items()]
    return msgspec.json.encode({"x": x, "series": shown, "unit": unit}).decode()
