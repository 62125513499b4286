"""The pools of static addresses that nodes offer, and which pod set of which Workload has reserved which.

    node n1 ─┐
    node n2 ─┴─ pool "10.0.3.16-10.0.3.19"      one pool for each text: of a node, or of a rack
                    10.0.3.16  team/db main     reserved, whether its pod runs or not
                    10.0.3.17  team/db main
                    10.0.3.18                   free

A reservation belongs to a pod set until its Workload has finished or is gone. So a pod that is created again,
and a gang that is evicted and starts again, have their addresses again, on nodes of the same pools.

A Workload takes places before its addresses are chosen (`choose`). So as many addresses of a pool are taken
as are reserved, or as pods with addresses are placed on its nodes and wait with one, whichever is more. An
eviction lowers the second number alone, since a victim keeps its addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from api.jobs.static_address import Reservations, parse_pool
from api.keys import HOSTNAME
from api.node import NodeInfo

Key = tuple[str, str]
"""Namespace and name of a Workload."""
PodSetKey = tuple[Key, str]


class AddressSlot(NamedTuple):
    """A reserved address, and the hosts on which a pod may have it; none while no node offers it."""

    address: str
    hosts: frozenset[str]


class AddressRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many addresses of which pools the pods of a pod set have; with `is_complete` they need no others.

    Pod sets without any share one rule, which names none.
    """

    pod_set: PodSetKey | None = None
    own: tuple[tuple[str, int], ...] = ()
    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPool:
    """The addresses that nodes share, in their order. `hosts` are its nodes' hostnames by their names."""

    addresses: tuple[str, ...]
    hosts: dict[str, str] = field(default_factory=dict)


class AddressBook:
    """Pools and reservations. Nodes and Workloads may come in any order."""

    def __init__(self) -> None:
        self._pools: dict[str, AddressPool] = {}
        self._nodes: dict[str, tuple[str, str]] = {}
        self._reserved: dict[Key, Reservations] = {}
        self._holders: dict[str, PodSetKey] = {}
        self._placed: set[Key] = set()
        # Follow from the above; None until they are asked for.
        self._pool_of: dict[str, str] | None = None
        self._counts: tuple[Counter[str], Counter[str]] | None = None

    # --- nodes -------------------------------------------------------------------------------------------

    def put_node(self, node: NodeInfo) -> None:
        """Add or update a node. A text that cannot be read makes no pool."""
        self.drop_node(node.name)
        if not node.addresses:
            return
        if node.addresses not in self._pools:
            try:
                self._pools[node.addresses] = AddressPool(addresses=parse_pool(node.addresses))
            except ValueError:
                return
            self._pool_of = self._counts = None
        host = node.labels.get(HOSTNAME, node.name)
        self._nodes[node.name] = node.addresses, host
        self._pools[node.addresses].hosts[node.name] = host

    def drop_node(self, name: str) -> None:
        """Remove a node, and its pool with the last node that has it. Reservations stay."""
        text, _ = self._nodes.pop(name, ("", ""))
        if text:
            pool = self._pools[text]
            del pool.hosts[name]
            if not pool.hosts:
                del self._pools[text]
                self._pool_of = self._counts = None

    def pool_of(self, node: str) -> str:
        """Return the text of a node's pool; empty without one."""
        text, _ = self._nodes.get(node, ("", ""))
        return text

    def pool_size(self, node: str) -> int:
        """Return how many addresses the pool of a node has; 0 without one."""
        text = self.pool_of(node)
        return len(self._pools[text].addresses) if text else 0

    def pools(self) -> Mapping[str, AddressPool]:
        """Return all pools, by their texts."""
        return self._pools

    def clashes(self, node: NodeInfo) -> tuple[str, str] | None:
        """Return an address of the node's pool that counts in another one, with a node of that, if any."""
        pool = self._pools.get(node.addresses)
        owners = self._owners()
        for address in pool.addresses if pool is not None else ():
            if owners[address] != node.addresses:
                return address, min(self._pools[owners[address]].hosts)
        return None

    def _owners(self) -> Mapping[str, str]:
        """Return the pool of each address; what several pools name is in the first of them, by text."""
        if self._pool_of is None:
            self._pool_of = {}
            for text in sorted(self._pools, reverse=True):
                self._pool_of.update(dict.fromkeys(self._pools[text].addresses, text))
        return self._pool_of

    # --- reservations ------------------------------------------------------------------------------------

    def reserve(self, key: Key, reservations: Reservations) -> frozenset[str]:
        """Let a Workload have these addresses and no others. Return the nodes whose pools have changed.

        An address that another one has is left out: the first that reserves it keeps it.
        """
        before = self._reserved.get(key, {})
        if before == reservations:
            return frozenset()
        self._reserved.pop(key, None)
        for name, address in _each(before):
            if self._holders.get(address) == (key, name):
                del self._holders[address]
        if reservations:
            self._reserved[key] = reservations
        for name, address in _each(reservations):
            self._holders.setdefault(address, (key, name))
        self._counts = None
        return self._nodes_of(address for _, address in (*_each(before), *_each(reservations)))

    def note_placed(self, key: Key, *, is_placed: bool) -> frozenset[str]:
        """Note whether the pods of a Workload have places. Return the nodes whose pools have changed."""
        if is_placed == (key in self._placed):
            return frozenset()
        (self._placed.add if is_placed else self._placed.discard)(key)
        self._counts = None
        return self._nodes_of(address for _, address in _each(self._reserved.get(key, {})))

    def reservations(self, key: Key) -> Reservations:
        """Return the addresses of a Workload, by pod set."""
        return self._reserved.get(key, {})

    def _nodes_of(self, addresses: Iterable[str]) -> frozenset[str]:
        owners = self._owners()
        texts = {owners[address] for address in addresses if address in owners}
        return frozenset(name for text in texts for name in self._pools[text].hosts)

    # --- questions ---------------------------------------------------------------------------------------

    def rule(self, key: Key, pod_set: str, count: int) -> AddressRule:
        """Return which addresses `count` pods of a pod set have already."""
        one, owners = (key, pod_set), self._owners()
        held = self._held(one)
        if not held:
            return AddressRule()
        own = Counter(owners[address] for address in held if address in owners)
        return AddressRule(pod_set=one, own=tuple(sorted(own.items())), is_complete=len(held) >= count)

    def beside(self, rule: AddressRule, pods: Mapping[str, int]) -> AddressRule:
        """Return the rule for the other pods of a pod set of which these, by host, stay where they are."""
        own = Counter(dict(rule.own))
        for text, pool in self._pools.items():
            own[text] -= sum(pods.get(host, 0) for host in {*pool.hosts.values()})
        left = tuple(sorted((text, count) for text, count in own.items() if count > 0))
        return msgspec.structs.replace(rule, own=left)

    def left(self, text: str, rule: AddressRule, *, placed: int) -> int:
        """Return how many addresses of a pool pods of the rule may have, beside `placed` pods of others."""
        own, owners = dict(rule.own).get(text, 0), self._owners()
        if rule.is_complete:
            return own
        reserved, waiting = self._totals()
        size = sum(1 for one in self._pools[text].addresses if owners[one] == text)
        is_waiting = rule.pod_set is not None and rule.pod_set[0] not in self._placed
        others = max(reserved[text] - own, placed + waiting[text] - (own if is_waiting else 0))
        return max(0, size - others)

    def choose(
        self, key: Key, pod_set: str, hosts: Sequence[str], *, besides: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return the addresses of a pod set whose pods are on these hosts, one host for each pod.

        Those that it has stay as they are; each pod beyond gets the lowest free one of its host's pool, and
        none where its host has no pool or all are taken. `besides` are addresses that are about to be
        reserved.
        """
        one, pool_of_host = (key, pod_set), {host: text for text, host in self._nodes.values()}
        owners, had = self._owners(), self._held(one)
        unused = Counter(owners.get(address) for address in had)
        chosen, taken = list(had), {*besides, *had}
        for host in hosts:
            text = pool_of_host.get(host)
            if unused[text] > 0:
                unused[text] -= 1
            elif text is not None and len(chosen) < len(hosts):
                free = (one for one in self._pools[text].addresses if owners[one] == text)
                for address in [one for one in free if one not in self._holders and one not in taken][:1]:
                    chosen.append(address)
                    taken.add(address)
        return tuple(chosen)

    def slot(self, address: str) -> AddressSlot:
        """Return the address with the hosts on which a pod may have it."""
        text = self._owners().get(address)
        hosts = self._pools[text].hosts.values() if text is not None else ()
        return AddressSlot(address, frozenset(hosts))

    def _held(self, one: PodSetKey) -> tuple[str, ...]:
        """Return the addresses of a pod set, without those that another one had before."""
        key, name = one
        had = self._reserved.get(key, {}).get(name, ())
        return tuple(address for address in had if self._holders.get(address) == one)

    def _totals(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many addresses of each pool are reserved, and how many of them for unplaced pods."""
        if self._counts is None:
            reserved, waiting, owners = Counter[str](), Counter[str](), self._owners()
            for address, (key, _) in self._holders.items():
                if (text := owners.get(address)) is not None:
                    reserved[text] += 1
                    waiting[text] += key not in self._placed
            self._counts = reserved, waiting
        return self._counts


def _each(reservations: Reservations) -> Iterator[tuple[str, str]]:
    """Yield each address with its pod set."""
    return ((name, address) for name, given in reservations.items() for address in given)
