"""Well-known keys: labels, annotations, finalizers and scheduling gates.

Kueue's own keys are used unchanged, so that existing manifests, dashboards and habits keep working.
Source: Kueue's reference of labels and annotations.
"""

from __future__ import annotations

KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSION = "kueue.x-k8s.io/v1beta2"
BATCH_VERSION = "batch/v1"
BERTH_VERSION = "berth.dev/v1alpha1"
_KUEUE = KUEUE_GROUP + "/"
BERTH_PREFIX = "berth.dev/"
# Written to a Workload by a new leader, so that a late write of the previous one fails with a conflict (409).
FENCE = BERTH_PREFIX + "fence"

# Placement requests on a Job or its pod template; read if the policy has a section for placement.
PLACEMENT_STRATEGY = BERTH_PREFIX + "placement-strategy"
PREFERRED_DOMAIN = BERTH_PREFIX + "preferred-domain"
LATENCY_SENSITIVE = BERTH_PREFIX + "latency-sensitive"
GPU_COUNT = BERTH_PREFIX + "gpu-count"
# On a Job: the minimum bandwidth of each of its nodes. On a node: the bandwidth that it has.
NETWORK_BANDWIDTH = BERTH_PREFIX + "network-bandwidth"
# Read on a Workload, which copies them from its Job, or on its pod templates.
EXPECTED_RUNTIME_SECONDS = BERTH_PREFIX + "expected-runtime-seconds"
OPPORTUNISTIC = BERTH_PREFIX + "opportunistic"
# Written on a Workload: its Job's activeDeadlineSeconds, its promised start time and domain, and
# its expected start time.
JOB_DEADLINE_SECONDS = BERTH_PREFIX + "job-deadline-seconds"
PLANNED_START = BERTH_PREFIX + "planned-start"
PLANNED_DOMAIN = BERTH_PREFIX + "planned-domain"
EXPECTED_START = BERTH_PREFIX + "expected-start"
# Written on a Workload: nodes where its pods could not be bound, each with the time (`api.excluded_nodes`).
EXCLUDED_NODES = BERTH_PREFIX + "excluded-nodes"
# On a Job or its pod template: each pod gets an address of its own. On a node: its pool; on a Workload: the
# addresses of its pods (`api.jobs.static_address`). On a pod, and as the resource of which each takes one.
STATIC_ADDRESS = BERTH_PREFIX + "static-address"
ADDRESSES = BERTH_PREFIX + "addresses"
ADDRESS = BERTH_PREFIX + "address"

# On a Job.
QUEUE_NAME = _KUEUE + "queue-name"
PRIORITY_CLASS = _KUEUE + "priority-class"
MAX_EXEC_TIME_SECONDS = _KUEUE + "max-exec-time-seconds"
PREBUILT_WORKLOAD_NAME = _KUEUE + "prebuilt-workload-name"
JOB_MIN_PARALLELISM = _KUEUE + "job-min-parallelism"
JOB_COMPLETIONS_EQUAL_PARALLELISM = _KUEUE + "job-completions-equal-parallelism"
STOPPING = _KUEUE + "stopping"
ADMISSION_GATED_BY = _KUEUE + "admission-gated-by"
ELASTIC_JOB = _KUEUE + "elastic-job"
# On the pods of an elastic Job, from their template: each waits there until a slice counts it.
ELASTIC_GATE = ELASTIC_JOB

# On a pod template, set by the user.
REQUIRED_TOPOLOGY = _KUEUE + "podset-required-topology"
PREFERRED_TOPOLOGY = _KUEUE + "podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY = _KUEUE + "podset-unconstrained-topology"
SLICE_REQUIRED_TOPOLOGY = _KUEUE + "podset-slice-required-topology"
SLICE_SIZE = _KUEUE + "podset-slice-size"
SLICE_CONSTRAINTS = _KUEUE + "podset-slice-required-topology-constraints"
POD_SET_GROUP = _KUEUE + "podset-group-name"

# On a pod template, set when a Job starts.
POD_SET = _KUEUE + "podset"
WORKLOAD = _KUEUE + "workload"
CLUSTER_QUEUE_NAME = _KUEUE + "cluster-queue-name"
LOCAL_QUEUE_NAME = _KUEUE + "local-queue-name"
MANAGED = _KUEUE + "managed"
TOPOLOGY_GATE = _KUEUE + "topology"

# On a pod that is queued individually or as a member of a group. The gate and the finalizer are added at its
# creation, by the webhook or by the template that it is created from.
ADMISSION_GATE = _KUEUE + "admission"
POD_FINALIZER = _KUEUE + "managed"
POD_GROUP_NAME = _KUEUE + "pod-group-name"
POD_GROUP_TOTAL_COUNT = _KUEUE + "pod-group-total-count"
POD_GROUP_FAST_ADMISSION = _KUEUE + "pod-group-fast-admission"
POD_GROUP_SERVING = _KUEUE + "pod-group-serving"
POD_GROUP_INDEX = _KUEUE + "pod-group-pod-index"
POD_GROUP_INDEX_LABEL = _KUEUE + "pod-group-pod-index-label"
POD_SUSPENDING_PARENT = _KUEUE + "pod-suspending-parent"
RETRIABLE_IN_GROUP = _KUEUE + "retriable-in-group"
SAFE_TO_DELETE_BY_FORCE = _KUEUE + "safe-to-forcefully-delete"
ROLE_HASH = _KUEUE + "role-hash"
# Written by the LeaderWorkerSet controller on the pods of its groups.
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_WORKER_SIZE = "leaderworkerset.sigs.k8s.io/size"
# Of the scheduler-plugins project, on a pod or Job: the PodGroup that it belongs to (today's label, that of
# its releases before 0.22, and the form without an object, whose minimum is a label too).
POD_GROUP = "scheduling.x-k8s.io/pod-group"
POD_GROUP_BEFORE = "pod-group.scheduling.sigs.k8s.io"
POD_GROUP_OF_LABELS = "pod-group.scheduling.sigs.k8s.io/name"
# Written by the Job controller on its pods, and by the articles on the pods of a gang.
JOB_NAME = "job-name"
POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
# On the Workload of a pod group.
IS_GROUP_WORKLOAD = _KUEUE + "is-group-workload"

# On a slice of an elastic Job: the first slice, by which its pods are found, and the one that it replaces, as
# namespace/name. The former also on its pods.
SLICE_NAME = _KUEUE + "workload-slice-name"
SLICE_REPLACEMENT_FOR = _KUEUE + "workload-slice-replacement-for"

# On a Workload. The two of its owner are written where the owner controls its pods, and not itself.
JOB_UID = _KUEUE + "job-uid"
JOB_OWNER_GVK = _KUEUE + "job-owner-gvk"
JOB_OWNER_NAME = _KUEUE + "job-owner-name"
PRIORITY_BOOST = _KUEUE + "priority-boost"
RESOURCE_IN_USE = _KUEUE + "resource-in-use"

# Read by the scheduler extender: on pods, and on nodes.
WANTED_GPU_MODEL = "accelerator.sched.io/gpu-model"
TRAINING_JOB = "training-job-id"
NUMA_NODE = BERTH_PREFIX + "numa-node"
NODE_GPU_MODEL = "nvidia.com/gpu.product"
NODE_NUMA_NODE = "nvidia.com/gpu.numa"
NODE_FABRIC = "nvlink-fabric-id"
GPU_RESOURCE = "nvidia.com/gpu"
# Also read by the extender. GPU_IDS lists the GPUs of its node that were assigned to a pod ("0,1").
GPU_IDS = BERTH_PREFIX + "gpu-ids"
GPU_MEMORY_MIB = BERTH_PREFIX + "gpu-memory-mib"
# Thousandths of one GPU that a pod uses: from 1 to 1000. As a resource it is counted in quotas.
GPU_MILLI = BERTH_PREFIX + "gpu-milli"
PARALLELISM = BERTH_PREFIX + "parallelism"
NODE_GPU_TOPOLOGY = "nvidia.com/gpu-topology"
NODE_ISLAND_PREFIX = BERTH_PREFIX + "nvlink-island."
NODE_GPU_MEMORY_GB = "gpu-memory-gb"
NODE_GPU_MEMORY_MIB = "nvidia.com/gpu.memory"
# As GPU feature discovery writes them: the GPUs of a node, the shares of each under time-slicing or MPS, and
# how MIG devices are offered.
NODE_GPU_COUNT = "nvidia.com/gpu.count"
NODE_GPU_REPLICAS = "nvidia.com/gpu.replicas"
NODE_MIG_STRATEGY = "nvidia.com/mig.strategy"
NODE_GPU_INTERCONNECT = "gpu-interconnect"
NODE_GPU_GENERATION = "gpu-generation"
NODE_COMPUTE_MAJOR = "nvidia.com/gpu.compute.major"
NODE_COST_PER_HOUR = "node-cost-per-hour"
# Written by the node agent as GPU feature discovery writes it: ampere, hopper.
NODE_GPU_FAMILY = "nvidia.com/gpu.family"
# On a node: the version of the node agent that wrote its labels.
NODE_AGENT_VERSION = BERTH_PREFIX + "node-agent-version"
# On a Job, its pod template or a pod: the least generation of the GPUs, and what links them.
GPU_GENERATION = BERTH_PREFIX + "gpu-generation"
GPU_INTERCONNECT = BERTH_PREFIX + "gpu-interconnect"

# Kubernetes' own key.
# The index of the first pod of a template, where another template has those below.
POD_INDEX_OFFSET = _KUEUE + "pod-index-offset"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

# On a Workload: the application that its pod is a replica of, and the minimum number of replicas.
REPLICA_OF = BERTH_PREFIX + "replica-of"
MIN_REPLICAS = BERTH_PREFIX + "min-replicas"

# On a Job or its pod template: training, inference or batch.
WORKLOAD_TYPE = BERTH_PREFIX + "workload-type"
# On a running Job: the time at which it expects to be complete.
EXPECTED_COMPLETION_TIME = BERTH_PREFIX + "expected-completion-time"
# On a Job or its pod template, set by the user or by a report to /v1/checkpoints.
CHECKPOINT_TIME = BERTH_PREFIX + "checkpoint-time"
CHECKPOINT_STEP = BERTH_PREFIX + "checkpoint-step"
CHECKPOINT_SAVE_SECONDS = BERTH_PREFIX + "checkpoint-save-seconds"
CHECKPOINT_RESTART_SECONDS = BERTH_PREFIX + "checkpoint-restart-seconds"
CHECKPOINT_INTERVAL_SECONDS = BERTH_PREFIX + "checkpoint-interval-seconds"
# "true": its pods save a checkpoint when they receive SIGTERM.
CHECKPOINT_ON_SIGTERM = BERTH_PREFIX + "checkpoint-on-sigterm"
# Written by Berth on a Workload: the last measured save and restart times, as JSON.
CHECKPOINT_MEASURED = BERTH_PREFIX + "checkpoint-measured"
# Written by Berth on a pod: since when a checkpoint is requested, and until when Berth waits for it.
CHECKPOINT_REQUESTED_AT = BERTH_PREFIX + "checkpoint-requested-at"
CHECKPOINT_DEADLINE = BERTH_PREFIX + "checkpoint-deadline"
# On a ResourceFlavor: the price of one of its devices per hour, in any currency.
COST_PER_DEVICE_HOUR = BERTH_PREFIX + "cost-per-device-hour"
# On a WorkloadPriorityClass: the label selector, in JSON, of the namespaces that may use it.
NAMESPACE_SELECTOR = BERTH_PREFIX + "namespace-selector"
# Written by Berth on a Workload: an eviction that waits for a checkpoint (`api.eviction`).
EVICTION = BERTH_PREFIX + "eviction"

# Written by the webhook on a new Job in a queue, and copied to its new Workload: who created the Job.
SUBMITTER = BERTH_PREFIX + "submitter"
# On a Job: names of Jobs of its namespace, or labels, that have to succeed before it starts; a label by which
# several Jobs can be named together.
DEPENDS_ON = BERTH_PREFIX + "depends-on"
STEP = BERTH_PREFIX + "step"
# The advance reservation of a policy that the Workload joins.
RESERVATION = BERTH_PREFIX + "reservation"

# Berth's keys that users write; Berth itself writes all others.
BERTH_TEMPLATE_KEYS = frozenset(
    BERTH_PREFIX + name
    for name in (
        "workload-type",
        "placement-strategy",
        "preferred-domain",
        "network-bandwidth",
        "latency-sensitive",
        "gpu-count",
        "parallelism",
        "gpu-memory-mib",
        "gpu-generation",
        "gpu-interconnect",
        "gpu-milli",
        "numa-node",
        "static-address",
        "expected-runtime-seconds",
        "expected-completion-time",
        "opportunistic",
        "min-replicas",
        "reservation",
        "depends-on",
        "step",
        "checkpoint-time",
        "checkpoint-step",
        "checkpoint-save-seconds",
        "checkpoint-restart-seconds",
        "checkpoint-interval-seconds",
        "checkpoint-on-sigterm",
    )
)
# The lowest level of a topology, at which each node is a domain; the name of the node unless it was changed.
HOSTNAME = "kubernetes.io/hostname"
# Read by the simulated kubelet of the demo and of trace replays.
BERTH_SIMULATION_PREFIX = BERTH_PREFIX + "simulated-"
# Keys that Berth writes, so that a user's copy of an object may contain them.
BERTH_WRITTEN_KEYS = frozenset(
    BERTH_PREFIX + name
    for name in (
        "expected-start",
        "planned-start",
        "planned-domain",
        "job-deadline-seconds",
        "excluded-nodes",
        "addresses",
        "address",
        "eviction",
        "fence",
        "submitter",
        "checkpoint-measured",
        "checkpoint-requested-at",
        "checkpoint-deadline",
        "managed-by",
        "replica-of",
        "gpu-ids",
    )
)

# Keys without Berth's prefix, which are read if the policy enables aliases.
_ARTICLES = "topology.scheduler/"
ALIASES = {
    WORKLOAD_TYPE: "workload-type",
    PLACEMENT_STRATEGY: _ARTICLES + "placement-strategy",
    PREFERRED_DOMAIN: _ARTICLES + "preferred-domain",
    NETWORK_BANDWIDTH: _ARTICLES + "network-bandwidth",
    LATENCY_SENSITIVE: _ARTICLES + "latency-sensitive",
    GPU_COUNT: _ARTICLES + "gpu-count",
}
# What pods ask of the hardware of their nodes (`admission.hardware`).
HARDWARE_KEYS = frozenset(
    {
        WANTED_GPU_MODEL,
        GPU_MEMORY_MIB,
        GPU_MILLI,
        GPU_GENERATION,
        GPU_INTERCONNECT,
        PARALLELISM,
        WORKLOAD_TYPE,
        ALIASES[WORKLOAD_TYPE],
    }
)
# Training that has any of these saves checkpoints, so it may run where it can be interrupted.
SAVING_KEYS = frozenset(
    {
        CHECKPOINT_TIME,
        CHECKPOINT_SAVE_SECONDS,
        CHECKPOINT_RESTART_SECONDS,
        CHECKPOINT_INTERVAL_SECONDS,
    }
)
# Workloads with equal requests may be placed differently if one of these keys differs.
PLACEMENT_KEYS = frozenset(ALIASES) | frozenset(ALIASES.values())
# Controllers of admission checks that provide the nodes. Source: Kueue, pkg/controller/admissionchecks.
PROVISIONING_CONTROLLER = _KUEUE + "provisioning-request"
MULTIKUEUE_CONTROLLER = _KUEUE + "multikueue"
# On a Job and its Workload: a parameter of its ProvisioningRequests, named by what follows.
PROVISIONING_PARAMETER_PREFIX = "provreq.kueue.x-k8s.io/"
# On pods: the ProvisioningRequest whose nodes they use, and its class. Source: cluster-autoscaler, apis.
CONSUMED_PROVISIONING_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
# On the Workload of a Job that another cluster runs: the value of the Job's spec.managedBy.
MANAGED_BY = BERTH_PREFIX + "managed-by"
# On a variant of a Workload in a ClusterQueue with concurrent admission: the name of the Workload.
CONCURRENT_ADMISSION_PARENT = _KUEUE + "concurrent-admission-parent"
