"""The words: objects on the wire, their frozen values, and how one becomes the other.

    objects        partial structs of watched objects, for hot reads
    models         pydantic models of the served kinds, for CRDs and manifests
    parsing        quantities, durations, cron lines, and faults field by field
    validation     what is wrong with an object
    definitions    CRDs from the models, and conversion from v1beta1
    jobs           Jobs and pods, and the Workloads that are made from them
    config         the configuration file
    wire           bodies of webhooks, extender, visibility and checkpoint reports
    kube           the API server: client, informer, lease, Events; the embedded server
    http           an HTTP server, certificates

Modules beside them hold the values that decide: `workload`, `queueing`, `policy`, `node`, and their
translation (`specs`, `policy_objects`). Statuses are written by `status_edit` and `workload_status`,
`quota_check` records in them what an admission was checked against.
`checkpoint` is for training jobs and imports nothing of Berth.

One policy governs a ClusterQueue (`policy.choose_policy`). It has its own sections and those of the
policy that it names as its base (`policy_inheritance`). A policy that cannot be used is not in force, and its
last good version is not used instead: what is in force follows from the objects alone.

Nothing here decides about Workloads. `kube` and `http` touch the outside, and so does `checkpoint` in its
training job; everything else is pure.
"""
