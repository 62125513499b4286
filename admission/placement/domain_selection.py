"""The choice of domains for a pod set: first the level and its domains, then down to the leaves.

What is searched. Given the counts of `admission.placement.topology.pod_counts`, a set of leaves that together
hold all pods of the request, respects its level and its slices, and uses few domains.

    1 find       at the wanted level: one domain that holds all; else (preferred) one level up, and so on;
                 at the top, or where no level is named: several domains
    2 descend    to the slice level over the children of all chosen domains together, from there on within
                 each domain separately, because slices must not be split

Two orders decide among domains:

- Best fit, where a level is named. Domains with the most room go first, but the last one taken is the
  smallest that holds the rest, so few domains are used and little room is left over in them.
- Least free, where any place will do. The fullest domains go first, so empty ones stay whole for gangs that
  need them. It compares nodes only, so it may place one pod in every rack. Keeping domains whole starts from
  the top instead: the fullest block that holds all, in it the fullest rack that holds all, and so on. Kueue
  has no such rule (its pull request 10406 asks for it).

Invariant. A domain's count says how many slices (below the slice level: pods) its subtree can take, and
counts add up along the tree. Domains that hold all pods in sum can therefore always be divided further down,
so the descent never fails and never has to backtrack: `has_place` is decided by step 1 alone. With a leader
that holds for the child that loses least by it, which is taken where the first in order leaves pods over.

Cost. With a ranking (`PodCounts.ranking`) one domain is found by bisection, O(log n) for n domains of the
level; otherwise a level is scanned and sorted, O(n log n). The descent looks only at children of chosen
domains. Both steps end because step 1 moves up and step 2 moves down one level at a time.

Source: Kueue, tas_flavor_snapshot.go, findLevelWithFitDomains and updateCountsToMinimumGeneric.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from admission.placement.balanced import balanced_shares
from admission.placement.topology.pod_counts import PodCounts
from admission.placement.topology.request import PlacementPlan


class PodShare(NamedTuple):
    """What a domain is given: a number of pods, and of leaders (at most one in all)."""

    domain: int
    pods: int
    leaders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """How many slices fit at most, and how many are needed.

    Becomes the message of the Workload, such as "allows to fit only 3 out of 8 pod(s)".
    """

    fitting: int
    needed: int


class _Found(NamedTuple):
    level: int
    domains: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSelection:
    """The choice for `pods` pods and `leaders` (0 or 1) leaders, on counts that are up to date.

    `within`: choose only below this domain.
    """

    counts: PodCounts
    plan: PlacementPlan
    pods: int
    leaders: int = 0
    within: int | None = None

    def choose(self) -> tuple[PodShare, ...] | Shortage:
        """Return the leaves and what each is given, or how much fits.

        The shares are leaves of the tree with at least one pod or leader, and add up to all of them. Cost:
        the domains of the levels that are looked at, sorted, or a bisection where the ranking of the level is
        kept (`PodCounts.ranking`).
        Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go, findTopologyAssignment.
        """
        # Balanced placement applies only to whole gangs without a leader, as in Kueue.
        if self.plan.is_balanced and not self.leaders and self.within is None:
            balanced = self._balanced()
            if balanced is not None:
                return balanced
        found = self._find_domains()
        if isinstance(found, Shortage):
            return found
        size, slice_level = self.plan.slice_size, self.plan.slice_level
        slices = self.counts.slices, self.counts.slices_with_leader
        # Handed out in slices down to the slice level and in pods below, so that no slice is split.
        shares = self._hand_out(found.domains, self.pods // size, self.leaders, slices, size)
        lowest = self.counts.site.tree.depth - 1
        level = found.level
        children = self.counts.site.tree.children
        # Down to the slice level the children of all chosen domains are one pool, from which
        # the next level is chosen freely.
        while level < min(lowest, slice_level):
            pool = self._sorted(child for share in shares for child in children[share.domain])
            shares = self._hand_out(pool, self.pods // size, self.leaders, slices, size)
            level += 1
        # Below the slice level each domain hands out its own share, so slices stay together.
        while level < lowest:
            level += 1
            shares = [below for share in shares for below in self._divide(share, level)]
        # Domains that were given nothing are left out.
        return tuple(share for share in shares if share.pods or share.leaders)

    def has_place(self) -> bool:
        """Return whether `choose` finds a place: domains that hold all in sum can always be divided."""
        return not isinstance(self._find_domains(), Shortage)

    def _find_domains(self) -> _Found | Shortage:
        """Return the domains to fill: from the widest level down where domains are to be kept whole."""
        return self._find_from_above() if self.plan.keeps_domains_whole else self._find(self.plan.level)

    def _balanced(self) -> tuple[PodShare, ...] | None:
        """Return an even choice, in which the share of each unit stays below it; None where there is none."""
        size, tree = self.plan.slice_size, self.counts.site.tree
        found = balanced_shares(self.counts, self.plan, self.pods // size)
        if found is None:
            return None
        level, units = found
        shares = [PodShare(unit, slices * size, 0) for unit, slices in units]
        columns = self.counts.slices, self.counts.slices_with_leader
        while level < self.plan.slice_level:
            # Level by level, so that each domain's share stays below it.
            level += 1
            shares = [
                below
                for share in shares
                for below in self._hand_out(
                    self._sorted(tree.children[share.domain]), share.pods // size, 0, columns, size
                )
            ]
        while level < tree.depth - 1:
            level += 1
            shares = [below for share in shares for below in self._divide(share, level)]
        return tuple(share for share in shares if share.pods)

    # --- the level ---------------------------------------------------------------------------------------

    def _find(self, level: int) -> _Found | Shortage:
        """Return the domains to fill, at this level or at a wider one where that is allowed."""
        need = self.pods // self.plan.slice_size
        single = self._single(level, need)
        if single is not None:
            # One domain that holds all is better than several, at any level.
            return _Found(level, [single])
        if self.plan.is_required:
            # A required level: no wider level is tried.
            return Shortage(fitting=self._most(level), needed=need)
        if level > 0 and not self.plan.is_unconstrained:
            # A preferred level: the next wider level is tried, until one domain holds all.
            return self._find(level - 1)
        return self._several(level, need)

    def _find_from_above(self) -> _Found | Shortage:
        """Narrow down to the fullest domain that holds all, level by level, and choose below it.

        Where no child holds all, the pods are spread within the domain that does.
        """
        need = self.pods // self.plan.slice_size
        narrowed = self
        # The fullest domain that holds all is taken at each level, so that work which could run anywhere does
        # not break up an empty domain.
        for level in range(self.plan.level + 1):
            single = narrowed._single(level, need)
            if single is None:
                # No domain of this level holds all: the pods are spread within the last one that did.
                break
            narrowed = replace(narrowed, within=single)
        return narrowed._find(self.plan.level)

    def _domains(self, level: int) -> list[int]:
        """Return the domains of a level among which to choose."""
        tree = self.counts.site.tree
        if self.within is None:
            return list(tree.at_level[level])
        # At or above the level of `within` the choice has one domain: `within` or the one above it.
        if tree.level[self.within] >= level:
            return [tree.ancestor(self.within, level)]
        below = [self.within]
        while tree.level[below[0]] < level:
            below = [child for domain in below for child in tree.children[domain]]
        return below

    @property
    def _scores(self) -> list[int] | None:
        """How well each domain suits the preferred node affinity, None where that does not count."""
        return self.counts.scores if self.plan.prefers_nodes else None

    @property
    def _is_ranked(self) -> bool:
        """Whether a whole level is compared by room alone, for which a ranking is kept."""
        return self.within is None and not self.leaders and self._scores is None

    def _single(self, level: int, need: int) -> int | None:
        """Return the domain that holds all with the least room left over, None where none holds all."""
        if self._scores is not None:
            return self._preferred_single(level, need)
        counts, values = self.counts, self.counts.site.tree.values
        if self._is_ranked:
            return counts.ranking(level).tightest(need)
        column = counts.slices_with_leader if self.leaders else counts.slices
        pods = counts.pods_with_leader if self.leaders else counts.pods
        fitting = [one for one in self._domains(level) if column[one] >= need]
        if self.leaders:
            # The domain must also have a node for the leader beside the workers.
            fitting = [one for one in fitting if counts.leader[one] >= self.leaders]
        if not fitting:
            return None
        return min(fitting, key=lambda one: (column[one], pods[one], values[one]))

    def _preferred_single(self, level: int, need: int) -> int | None:
        """Return the domain that holds all, by preference first; None where the level is to be left.

        Of the domains that suit best, the tightest one. Another one is taken only at a required level, or
        where any place will do: otherwise a wider level is tried before a domain that suits less, as in
        Kueue.
        """
        counts = self.counts
        column = counts.slices_with_leader if self.leaders else counts.slices
        ordered = self._sorted(self._domains(level), keeps_full=True)
        for index, domain in enumerate(ordered):
            if column[domain] >= need and (not self.leaders or counts.leader[domain] >= self.leaders):
                if self.plan.is_least_free:
                    return domain
                return self._tightest(ordered[index:], need, self.leaders, column, 1)
            if not self.plan.is_required and not self.plan.is_least_free:
                return None
        return None

    def _most(self, level: int) -> int:
        """Return how many slices the roomiest domain of the level holds; 0 without domains."""
        if self._is_ranked:
            return self.counts.ranking(level).most
        return max((self.counts.slices[one] for one in self._domains(level)), default=0)

    def _several(self, level: int, need: int) -> _Found | Shortage:
        """Return domains that together hold all, in the order of the choice, or how much fits."""
        domains: Iterable[int]
        # For least free the ranking already has the order of the choice.
        if self._is_ranked and self.plan.is_least_free:
            domains = self.counts.ranking(level)
        else:
            domains = self._sorted(self._domains(level))
        slices = self.counts.slices, self.counts.slices_with_leader
        shares = self._hand_out(domains, need, self.leaders, slices, 1)
        held = sum(share.pods for share in shares)
        leaders = sum(share.leaders for share in shares)
        # All domains together do not hold enough. The shortage reports how much fits.
        if held < need or leaders < self.leaders:
            return Shortage(fitting=min(held, need), needed=need)
        return _Found(level, [share.domain for share in shares])

    # --- handing out -------------------------------------------------------------------------------------

    def _divide(self, share: PodShare, level: int) -> list[PodShare]:
        """Divide what one domain was given among its children, which are of `level`."""
        counts, unit = self.counts, self.plan.units[level]
        pool = self._sorted(counts.site.tree.children[share.domain])
        return self._hand_out(
            pool, share.pods // unit, share.leaders, (counts.pods, counts.pods_with_leader), unit
        )

    def _hand_out(
        self,
        domains: Iterable[int],
        need: int,
        leaders: int,
        columns: tuple[list[int], list[int]],
        size: int,
    ) -> list[PodShare]:
        """Give `need` units and the leaders to as few of the domains as the order allows.

        A unit is `size` pods. `columns` hold how much each domain takes, without and with the leader: in
        slices at and above the slice level, in pods below it. What does not fit is left out of the result.
        """
        # Below the slice level the columns count pods, so a unit takes `size` of them.
        unit = size if columns[0] is self.counts.pods else 1
        if not leaders:
            return self._hand_out_pods(domains, need, columns[0], size, unit)
        domains = list(domains)
        shares = self._hand_out_with_leader(domains, need, leaders, columns, size, unit)
        if sum(share.pods for share in shares) >= need * size:
            return shares
        # The order puts the leader where most pods fit beside it, which may be where it costs most of them.
        # The counts above are those with the leader where it costs least. Kueue has no places for the group
        # then, and logs an "unexpected remainingCount".
        domains.sort(key=lambda one: self.counts.loss(one, columns, unit))
        again = self._hand_out_with_leader(domains, need, leaders, columns, size, unit)
        return again if sum(share.pods for share in again) >= need * size else shares

    def _hand_out_with_leader(
        self,
        domains: Iterable[int],
        need: int,
        leaders: int,
        columns: tuple[list[int], list[int]],
        size: int,
        unit: int,
    ) -> list[PodShare]:
        """Give the leaders to the first domains that host them, and units to all until none is left."""
        hosts = self.counts.leader
        shares: list[PodShare] = []
        rest = deque(domains)
        while rest and leaders > 0:
            domain = rest.popleft()
            hosted = min(leaders, hosts[domain])
            # Only leaders remain to be placed, and this domain cannot take one.
            if need <= 0 and not hosted:
                continue
            column = columns[1] if hosted else columns[0]
            room = column[domain] // unit
            # This domain takes all that is left. The smallest one that does is used, to
            # leave little room over.
            if room >= need and hosted == leaders:
                if not self.plan.is_least_free:
                    domain = self._tightest((domain, *rest), need, leaders, column, unit)
                return [*shares, PodShare(domain, need * size, leaders)]
            if room > 0 or hosted:
                shares.append(PodShare(domain, min(room, need) * size, hosted))
                # Never below zero: a domain may hold more than is left.
                need = max(0, need - room)
                leaders -= hosted
        # All leaders are placed. The remaining domains are asked in the order for plain pods.
        rest_sorted = self._sorted(rest, leaders=0)
        return [*shares, *self._hand_out_pods(rest_sorted, need, columns[0], size, unit)]

    def _hand_out_pods(
        self, domains: Iterable[int], need: int, column: list[int], size: int, unit: int
    ) -> list[PodShare]:
        """Give `need` units to domains in their order, which is read only as far as necessary."""
        shares: list[PodShare] = []
        rest = iter(domains)
        for domain in rest:
            if need <= 0:
                break
            room = column[domain] // unit
            if room >= need:
                if not self.plan.is_least_free:
                    # As above: the last domain is the smallest that holds the rest.
                    domain = self._tightest((domain, *rest), need, 0, column, unit)
                return [*shares, PodShare(domain, need * size, 0)]
            if room > 0:
                shares.append(PodShare(domain, room * size, 0))
                need -= room
        return shares

    def _tightest(self, domains: Sequence[int], need: int, leaders: int, column: list[int], unit: int) -> int:
        """Return the domain that holds all with the least room left over; the first of several.

        Where nodes are preferred, only domains that suit as well as the first one count.
        """
        hosts, scores = self.counts.leader, self._scores
        best, least = domains[0], column[domains[0]] // unit
        for domain in domains:
            if scores is not None and scores[domain] != scores[domains[0]]:
                break
            room = column[domain] // unit
            if need <= room < least and (not leaders or hosts[domain] >= leaders):
                best, least = domain, room
        # Of equal room the first one, which preserves the order of the choice.
        return best

    def _sorted(
        self, domains: Iterable[int], leaders: int | None = None, *, keeps_full: bool = False
    ) -> list[int]:
        """Return the domains in the order in which they are used.

        Without a leader, only those with room, or all of them with `keeps_full`.
        """
        counts, values = self.counts, self.counts.site.tree.values
        scores = self._scores
        sign = 1 if self.plan.is_least_free else -1
        if self.leaders if leaders is None else leaders:
            hosts, slices, pods = counts.leader, counts.slices_with_leader, counts.pods_with_leader
            # Hosts of the leader first, because room for it is scarcer than room for a pod.
            return sorted(
                domains,
                key=lambda one: (
                    -hosts[one],
                    -scores[one] if scores is not None else 0,
                    sign * slices[one],
                    pods[one],
                    values[one],
                ),
            )
        # Sorts are stable, so the least important key is sorted first. Domains without room are left out.
        room = counts.pods
        ordered = sorted([one for one in domains if keeps_full or room[one]], key=values.__getitem__)
        ordered.sort(key=room.__getitem__)
        ordered.sort(key=counts.slices.__getitem__, reverse=not self.plan.is_least_free)
        if scores is not None:
            ordered.sort(key=scores.__getitem__, reverse=True)
        return ordered
