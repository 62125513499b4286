"""Flavors: which flavors does a Workload get, and can it fit at all?

Modules, in reading order:

    flavor_refusal       why pods cannot use a flavor whatever its quota
    hardware_needs       what pods need of hardware, and why no node of a flavor may run them
    flavor_score         the score of a flavor, from terms with units
    flavor_ranking       these terms for one Workload, where its policy chooses flavors by score
    flavor_assigner      the search: Fit, Preempt or NoFit for each pod set, and why
    topology_assigner    the step after it: a place in the topology for each pod set
    placement_hints      what annotations and the policy ask of a placement
    feasibility          cheap necessary conditions, checked before any search
    assignment_cache     results of the search that Workloads of the same shape share

Decisions:

- Workloads of the same shape share a result. Where the first usable flavor has room, the next Workload of the
  shape costs two checks per resource instead of a search, and gets the same values (`assignment_cache`).
- A search that found nothing is kept as well. A pending Workload is woken whenever capacity comes free, and
  mostly lacks what it lacked before. Where every quota question has the same answer and no Workload could
  possibly be evicted, only the numbers in the message are updated. The test for possible victims may report
  one too often, and never none where a search would find one.
- A cheap and necessary condition precedes every search (`feasibility`). Thousands of Workloads may wait, and
  an event then costs a search only for the few shapes that it could help.
- A score decides only between flavors that fit now. Which flavor is waited or preempted for, and where a
  promised start will be, follows Kueue's order: prices and usage at a later time are not known.
- The refusals of a flavor are one function, `flavor_refusal`, which `berth explain` asks too. So the command
  and the scheduler cannot give different reasons.

The arithmetic of quota is `queues.quota`; places are found by `admission.placement`; whether evictions would
help is answered by `admission.preemption`, through the `Oracle`.
"""
