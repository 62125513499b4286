"""ProvisioningRequests: what must be known to ask the cluster's autoscaler for the nodes of a Workload.

Modules, in reading order:

    context       what must be known of the cluster
    pod_sets      which pods a request is for, and which of them share a template

The rules are steps of a Workload's look (`admission.reconcile.workload`, `node_requests` and `node_checks`).
"""
