"""pydantic models of the objects Berth serves: Kueue's kinds and AdmissionPolicy.

They are used at the edges, where objects come from people: the CRDs are generated from them and manifests are
validated with them. The hot path decodes objects with the structs of api.objects and never uses these models.
"""

from api.models.admission_policy import AdmissionPolicy
from api.models.classes import AdmissionCheck, WorkloadPriorityClass
from api.models.cluster_queue import ClusterQueue
from api.models.cohort import Cohort
from api.models.local_queue import LocalQueue
from api.models.resource_flavor import ResourceFlavor, Topology
from api.models.workload import Workload

__all__ = [
    "AdmissionCheck",
    "AdmissionPolicy",
    "ClusterQueue",
    "Cohort",
    "LocalQueue",
    "ResourceFlavor",
    "Topology",
    "Workload",
    "WorkloadPriorityClass",
]
