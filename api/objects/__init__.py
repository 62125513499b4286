"""Partial msgspec structs of the objects that Berth watches, for fast decoding.

An informer decodes tens of thousands of objects. A partial struct takes 4-9 us where a dict takes 60 and a
pydantic model over 100, and the garbage collector need not track it (gc=False: the structs contain no
cycles). Fields that Berth does not read are skipped; writes are built from the bytes of the object, so
nothing is lost. Explicit nulls count as absent, as in Kubernetes.

Modules, in reading order:

    common       metadata, conditions, selectors, taints: what several kinds contain
    templates    pod templates and what Berth reads of a pod's spec
    queues       Kueue's kinds about quota
    workloads    Kueue's Workload
    policies     Berth's AdmissionPolicy
    cluster      Kubernetes' own kinds

`api.workload`, `api.queueing`, `api.jobs.job` and `api.node` convert the structs to the values that decisions
use.
"""
