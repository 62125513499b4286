"""AdmissionPolicy: which of Berth's features go beyond Kueue's decisions, and for which ClusterQueues.

Without a policy decisions are Kueue's. Each feature is its own section of the spec and is off until it stands
there, so a cluster takes them up one by one.
"""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import Conditions, DnsSubdomain, Int32, LabelSelector, Model, ObjectMeta
from api.models.markers import EMPTY, SET


class BoundClusterQueues(Model):
    """Which ClusterQueues a policy governs. Those named and those selected both; with neither, all."""

    names: Annotated[list[DnsSubdomain], Field(max_length=256), SET] | None = None
    """ClusterQueues by name."""
    selector: LabelSelector | None = None
    """ClusterQueues by their labels."""


class AdmissionPolicySpec(Model):
    """What is governed, and how."""

    cluster_queues: Annotated[BoundClusterQueues, EMPTY] = Field(default_factory=BoundClusterQueues)
    """ClusterQueues that the policy governs. Default: all."""
    precedence: Int32 = 0
    """Of several policies for one ClusterQueue the one with the highest precedence counts, and of equals the
    one whose name sorts first. Default 0, which leaves room on both sides."""
    aliases: Literal["None", "Articles"] = "None"
    """Articles: the unprefixed keys of the scheduling articles count like their berth.dev/ counterparts.
    Default None, because the Job controller itself sets one of them, job-name, on every pod."""


class AdmissionPolicyStatus(Model):
    """Observed state of an AdmissionPolicy."""

    conditions: Conditions | None = None
    """Accepted: whether the policy is in force, and why not."""


class AdmissionPolicy(Model):
    """Switches features of Berth on for ClusterQueues."""

    api_version: Literal["berth.dev/v1alpha1"] = "berth.dev/v1alpha1"
    kind: Literal["AdmissionPolicy"] = "AdmissionPolicy"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: Annotated[AdmissionPolicySpec, EMPTY] = Field(default_factory=AdmissionPolicySpec)
    """What is governed, and how."""
    status: AdmissionPolicyStatus | None = None
    """Observed state."""
