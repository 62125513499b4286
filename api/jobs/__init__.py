"""Jobs and pods as frozen values, and the Workloads that are made from them.

Modules, in reading order:

    job                       batch/v1 Job
    pod                       a pod that is queued itself or in a group
    gang                      the minimum that a PodGroup gives to pods and Jobs
    pod_role                  the role of a pod in its group
    queued_object             what both have in common
    job_workload              the Workload of a Job
    pod_workload              the Workload of a pod or a group
    job_patches               the patches that start and stop a Job
    pod_template              what a Workload keeps of a template, what a start adds and a stop removes
    resource_requests         what a pod set requests, with limit ranges, overhead and transformations
    device_mapping            which resource counts the devices of a class
    inference_memory          the GPU memory that a pod of inference uses
    static_address            static addresses: what pods ask for, pools of nodes, reservations
    topology_request          Kueue's topology annotations
    placement_annotations     Berth's placement annotations and their aliases
    checkpoint_annotations    what a Job reports of its checkpoints
    pod_owner_key             how a Workload and its pods find each other

These modules translate and decide nothing. What a Job or pod needs next is `admission.reconcile`.
"""
