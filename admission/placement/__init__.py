"""Placement: which nodes does a gang get?

The room answers for one pod set and one flavor at a time: on which domains and nodes its pods fit, which of
the possible places is best, and which nodes replace the failed ones under a running gang.

Modules, in reading order:

    topology            the trees of domains, and what is free in each (a room of its own)
    search              the search for one pod set in one topology; the entry point
    domain_selection    Kueue's choice: first the level and its domains, then down to the leaves
    balanced            Kueue's balanced placement of a preferred gang
    gangs               placement by a policy: candidates by size rule or distance, and their order
    rules               on how many leaves a gang of a given size is placed
    strategies          which of several domains is taken, and how its nodes are filled
    scoring             the score of a domain, from 0 to 1
    fragmentation       how much of a node's free GPUs later pods can use
    fragmentation_mix   which demands pods usually make, by which that is measured
    packing             pods on the nodes that lose the least to fragmentation
    candidate_leaves    what leaves offer to gangs of one shape, updated as they change
    top_candidate       the best of many candidates, without sorting all of them again
    replacement         new nodes for the part of a gang that was lost
    topology_cache      all nodes and pods, and the search for places on them
    topology_usage      the places that Workloads hold

Decisions:

- A policy places only pod sets that leave their place open. A pod set with a topology request of its own is
  placed by Kueue's rules (`gangs`).
- Size rules are judged on the empty cluster, so that a gang waits for its leaf and is not split because the
  leaf is busy. They are judged on the nodes that exist, so that a lost node shrinks the rule.
- Under a policy every set of leaves keeps its rank among the candidates from search to search
  (`candidate_leaves`, `top_candidate`). Only sets whose nodes have changed are ranked again, since a busy
  cluster asks for every pending gang and changes a few nodes in between.

Whether the quota allows the place is decided in `admission.flavors`; which Workloads may be evicted or moved
for it, in `admission.preemption`.
"""
