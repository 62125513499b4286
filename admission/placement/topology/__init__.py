"""Topology: the trees of domains that node labels describe, and how many pods fit into each domain.

Modules, in reading order:

    tree                domains by level, leaves at the bottom
    hierarchy           the levels that the labels of the nodes describe, and where labels contradict
    nodes               all nodes, and what pods of others take of them
    flavor_topology     the nodes of one flavor, with what is free in every leaf
    changelog           which leaves have changed, for readers that catch up when they need to
    pod_counts          how many pods of one shape fit into every domain
    ranking             the domains of a level, sorted by room
    request             what is asked of a placement, and the possible results
    node_exclusions     the nodes that refuse the pods of a request, and why
    preferred_nodes     how well nodes and domains suit preferred node affinity
    gpu_room            how many pods the NVLink islands and the shared GPUs of each node hold
    address_book        pools of static addresses, and who has reserved which
    address_room        how many pods with static addresses each host takes
    leader_room         where a group's leader finds room, and how many pods beside it
    node_health         the faults of nodes under placed pods
    place               where pods run: a value that is taken from a topology and given back

Decisions:

- Free capacity is maintained, not summed up for each question. An event marks the leaf where it happens, and
  a reader follows the marks when it is asked (`flavor_topology`, `changelog`). A sum changes by the
  difference of its child (`pod_counts`). Each level that is asked for the tightest fit is kept in that order
  (`ranking`). A decision reads sums over thousands of nodes and changes a handful of them, so to count all of
  them for each decision would cost more than everything else.
- What is maintained is checked against a plain search that counts everything from the beginning
  (tests/admission/placement/plain.py). Both must give the same places after any sequence of events.

Which place is chosen is decided one room above, in `admission.placement`.
"""
