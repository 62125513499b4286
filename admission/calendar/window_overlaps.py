"""Which quota windows of a policy are ever open together: computed in steps, and cached.

A policy with dozens of windows of one quota has thousands of pairs, each with openings of a year ahead. Every
write of a policy's status needs the answer, so it is computed once for each list of windows. It is computed
again after a week, since the year that is examined begins on the day of the computation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from api.policy import AdmissionPolicy, QuotaWindow
from queues.quota.quota_windows import overlaps
from queues.steps import Steps, finish

# Overlaps are searched this far ahead, past the days on which clocks change, and in at most so many openings
# of each window, which is all of them for a window that opens daily.
_AHEAD_SECONDS = 370 * 86400.0
_MOST_OPENINGS = 400
# An answer older than this is computed again.
_HOLDS_SECONDS = 7 * 86400.0

# Indices into the policy's list of windows, the earlier first.
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    windows: tuple[QuotaWindow, ...]
    at: float
    pairs: Pairs


@dataclass(slots=True)
class Overlaps:
    """The overlaps found so far, by policy. One task owns it."""

    _found: dict[str, _Found] = field(default_factory=dict)
    _search: Steps[Pairs] | None = None

    def step(self, policies: Collection[AdmissionPolicy], *, now: float) -> bool:
        """Advance the search for one policy that is not known yet. Returns whether there is more to do."""
        if self._search is None:
            unknown = next((one for one in policies if self._known(one, now) is None), None)
            if unknown is None:
                return False
            names = {policy.name for policy in policies}
            self._found = {name: found for name, found in self._found.items() if name in names}
            self._search = self._look_at(unknown, now)
        if next(self._search, self) is self:
            self._search = None
        return True

    def of(self, policy: AdmissionPolicy, *, now: float) -> Pairs:
        """Return the pairs of the policy's windows that overlap in the year ahead; blocks where unknown."""
        known = self._known(policy, now)
        return finish(self._look_at(policy, now)) if known is None else known

    def _known(self, policy: AdmissionPolicy, now: float) -> Pairs | None:
        if len(policy.quota_windows) < 2:
            return ()
        found = self._found.get(policy.name)
        if found is None or found.windows != policy.quota_windows or abs(now - found.at) > _HOLDS_SECONDS:
            return None
        return found.pairs

    def _look_at(self, policy: AdmissionPolicy, now: float) -> Steps[Pairs]:
        by_quota: dict[tuple[str, str, str], list[int]] = {}
        for index, window in enumerate(policy.quota_windows):
            by_quota.setdefault((window.cluster_queue, window.flavor, window.resource), []).append(index)
        pairs: list[tuple[int, int]] = []
        for indices in by_quota.values():
            windows = [policy.quota_windows[index] for index in indices]
            until = now + _AHEAD_SECONDS
            found = yield from overlaps(windows, after=now, until=until, most=_MOST_OPENINGS)
            pairs += ((indices[one], indices[other]) for one, other in found)
        known = _Found(windows=policy.quota_windows, at=now, pairs=tuple(sorted(pairs)))
        self._found[policy.name] = known
        return known.pairs
