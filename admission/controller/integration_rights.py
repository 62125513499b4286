"""What each integration may do in the cluster, asked once at the start.

The rights of each integration are a ClusterRole of its own (deploy/integrations), so that a cluster grants
none for what it does not use. An integration that is configured without its rights is switched off and named
in the log: its watch would never be answered, and nothing would be decided at all.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Container, Sequence
from dataclasses import dataclass

import msgspec

from admission.controller.external_definitions import Definition, definition_of
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options
from admission.controller.writer.requests import owner_resource, source_resource
from api.config.berth import OwnIntegrations
from api.config.external import external_kinds
from api.config.rules import POD_BASED
from api.jobs.owners.external import ExternalKind, row_of
from api.jobs.owners.table import OWNER_KINDS
from api.kube import resources
from api.kube.client import Body, KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import Resource

log = Log("berth.controller")

REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_READING = frozenset({"list", "watch"})
# Not frameworks of Kueue's configuration: the fields of ControllerConfig that switch them on.
_POD_GROUPS = "podGroups"
_PROVISIONING = "provisioningRequests"
# Kueue's feature gates, which switch them on.
_DEVICES = "KueueDRAIntegration"
_FAILURE_RECOVERY = "FailureRecoveryPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationRights:
    """The verbs on a kind without which an integration cannot work.

    `framework` is its name in integrations.frameworks, or its field in ControllerConfig; `file` where
    deploy/ grants the verbs, "" if the user has to; `without` what does not happen without them.
    """

    framework: str
    file: str
    kind: Resource
    verbs: tuple[str, ...]
    without: str


INTEGRATIONS = (
    IntegrationRights(
        framework="batch/job",
        file="integrations/job.yaml",
        kind=resources.JOBS,
        verbs=("list", "watch", "patch"),
        without="no Job starts",
    ),
    IntegrationRights(
        framework="batch/job",
        file="integrations/job-pods.yaml",
        kind=resources.PODS,
        verbs=("patch",),
        without="no placement by topology, no replacement of failed nodes, no requests for checkpoints",
    ),
    IntegrationRights(
        framework="pod",
        file="integrations/pod.yaml",
        kind=resources.PODS,
        verbs=("list", "watch", "patch", "delete"),
        without="no pods, Deployments, StatefulSets or LeaderWorkerSets in queues",
    ),
    IntegrationRights(
        framework="statefulset",
        file="integrations/statefulset.yaml",
        kind=resources.STATEFUL_SETS,
        verbs=("list", "watch"),
        without="no StatefulSets in queues",
    ),
    IntegrationRights(
        framework="leaderworkerset.x-k8s.io/leaderworkerset",
        file="integrations/leaderworkerset.yaml",
        kind=resources.LEADER_WORKER_SETS,
        verbs=("list", "watch"),
        without="no LeaderWorkerSets in queues",
    ),
    *(
        IntegrationRights(
            framework=row.framework,
            file=f"integrations/{row.plural}.yaml",
            kind=owner_resource(row),
            verbs=("list", "watch", "patch"),
            without=f"no {row.kind} in queues",
        )
        for row in OWNER_KINDS
    ),
    *(
        IntegrationRights(
            framework=row.framework,
            file=f"integrations/{row.plural}.yaml",
            kind=source_resource(source),
            verbs=("list", "watch"),
            without=f"no {row.kind} in queues",
        )
        for row in OWNER_KINDS
        for source in row.sources
    ),
    IntegrationRights(
        framework=_POD_GROUPS,
        file="podgroups/rbac.yaml",
        kind=resources.POD_GROUPS,
        verbs=("list", "watch"),
        without="no gangs by PodGroup: pods that name one are queued one by one",
    ),
    IntegrationRights(
        framework=_PROVISIONING,
        file="integrations/provisioning.yaml",
        kind=resources.POD_TEMPLATES,
        verbs=("list", "watch", "create", "patch"),
        without="checks of kueue.x-k8s.io/provisioning-request wait for another controller",
    ),
    IntegrationRights(
        framework=_PROVISIONING,
        file="integrations/provisioning.yaml",
        kind=resources.PROVISIONING_REQUESTS,
        verbs=("list", "watch", "create", "delete"),
        without="checks of kueue.x-k8s.io/provisioning-request wait for another controller",
    ),
    *(
        IntegrationRights(
            framework=_DEVICES,
            file="integrations/devices.yaml",
            kind=kind,
            verbs=("list", "watch"),
            without="no quota counts devices: Workloads with resource claims wait",
        )
        for kind in (
            resources.DEVICE_CLASSES,
            resources.RESOURCE_CLAIM_TEMPLATES,
            resources.RESOURCE_SLICES,
        )
    ),
    IntegrationRights(
        framework=_FAILURE_RECOVERY,
        file="integrations/pod.yaml",
        kind=resources.PODS,
        verbs=("patch", "delete"),
        without="pods on nodes that cannot be reached stay until the node is back",
    ),
)


async def with_permitted_integrations(client: KubeClient, options: Options) -> Options:
    """Return the options without the integrations that the cluster does not grant; Jobs are always managed.

    Logs each one with what is missing. Raises KubeError if the API server does not answer.
    """
    listed = options.config.kueue.integrations.frameworks
    switches = options.config.berth
    own = {
        _POD_GROUPS: switches.pod_groups,
        _PROVISIONING: switches.provisioning_requests,
        _DEVICES: options.config.resources.devices.is_on,
        _FAILURE_RECOVERY: options.config.kueue.feature_gates.get(_FAILURE_RECOVERY, False),
    }
    kinds = external_kinds(switches)
    asked = [one for one in INTEGRATIONS if one.framework in (*listed, "batch/job") or own.get(one.framework)]
    asked += map(_of_external, kinds)
    missing = await asyncio.gather(*(_missing(client, one, options) for one in asked))
    refused: set[str] = set()
    for one, verbs in zip(asked, missing, strict=True):
        if verbs:
            refused.add(one.framework)
            log.warning(
                "rights-missing",
                integration=one.framework,
                missing=f"{', '.join(verbs)} {one.kind.plural}",
                without=one.without,
                note=f"{_remedy(one)} and restart, or stop using it",
            )
    if "pod" in refused:
        # They queue nothing but pods.
        refused.update(POD_BASED)
    frameworks = [name for name in listed if name == "batch/job" or name not in refused]
    integrations = options.config.kueue.integrations.model_copy(update={"frameworks": frameworks})
    refused |= {kind.where for kind in kinds if await _lacks_paths(client, kind)}
    granted = {name: is_on and name not in refused for name, is_on in own.items()}
    switched_off = {gate: False for gate in (_DEVICES, _FAILURE_RECOVERY) if gate in refused}
    gates = {**options.config.kueue.feature_gates, **switched_off}
    kueue = options.config.kueue.model_copy(update={"integrations": integrations, "feature_gates": gates})
    berth = switches.model_copy(
        update={
            "pod_groups": granted[_POD_GROUPS],
            "provisioning_requests": granted[_PROVISIONING],
            "integrations": _without(switches.integrations, kinds, refused),
        }
    )
    return dataclasses.replace(options, config=dataclasses.replace(options.config, kueue=kueue, berth=berth))


def _of_external(kind: ExternalKind) -> IntegrationRights:
    return IntegrationRights(
        framework=kind.where,
        file="",
        kind=owner_resource(row_of(kind)),
        verbs=("list", "watch", "patch"),
        without=f"no {kind.kind} in queues",
    )


def _remedy(one: IntegrationRights) -> str:
    return f"apply deploy/{one.file}" if one.file else f"grant them on {one.kind.plural}.{one.kind.group}"


async def _lacks_paths(client: KubeClient, kind: ExternalKind) -> bool:
    found = await definition_of(client, kind, without=f"no {kind.kind} in queues")
    if found is Definition.UNREADABLE:
        log.info(
            "definition-unread",
            integration=kind.where,
            note="a wrong path would not be noticed; allow get of this definition",
        )
    return found is Definition.LACKS_PATHS


def _without(
    integrations: OwnIntegrations, kinds: Sequence[ExternalKind], refused: Container[str]
) -> OwnIntegrations:
    rows = zip(integrations.external, kinds, strict=True)
    return integrations.model_copy(
        update={"external": [row for row, kind in rows if kind.where not in refused]}
    )


async def _missing(client: KubeClient, one: IntegrationRights, options: Options) -> list[str]:
    # Observe mode writes nothing.
    verbs = [verb for verb in one.verbs if verb in _READING or not options.observe]
    allowed = await asyncio.gather(*(_is_allowed(client, verb, one.kind) for verb in verbs))
    return [verb for verb, is_allowed in zip(verbs, allowed, strict=True) if not is_allowed]


async def _is_allowed(client: KubeClient, verb: str, kind: Resource) -> bool:
    attributes = {"verb": verb, "group": kind.group, "resource": kind.plural}
    review = {
        "apiVersion": f"{REVIEWS.group}/{REVIEWS.version}",
        "kind": REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    try:
        raw = await client.request("POST", REVIEWS.path(), body=Body(msgspec.json.encode(review)))
    except (Forbidden, NotFound):
        # A server that does not answer this question may grant the right all the same.
        return True
    return msgspec.json.decode(raw, type=_Review).status.allowed


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status
