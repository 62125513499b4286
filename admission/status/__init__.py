"""Status: what is reported about queues, policies and Workloads?

Modules, in reading order:

    views              frozen views of queues, cohorts and policies
    queue_status       statuses of ClusterQueues, LocalQueues and Cohorts
    check_status       status of AdmissionChecks that ask the cluster's autoscaler for nodes
    policy_status      status of AdmissionPolicies, with fields that have no effect
    object_problems    objects that are of no use as they are, with the reason
    calendar_view      the state of each quota window and reservation
    turns              positions, so that they agree with expected starts
    explain            why a Workload waits, with every flavor, domain and node
    last_eviction      when and why a Workload was evicted, and for which preemptor
    backlog            how much waits in a ClusterQueue, for metrics

Everything is computed from the state when it is asked for, by the functions that decide, so a report cannot
contradict a decision. Nothing is decided here. When a status is written is decided by
`admission.controller.loop.status_writer`.
"""
