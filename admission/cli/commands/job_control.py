"""What the verbs on Jobs and queues do: find the Workload of a Job, and patch one field.

A Job is stopped through its Workload: `spec.active: false` releases the quota and suspends the Job, and
nothing of it is lost. Suspending the Job itself would not last, because an admitted Job is started again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable

from admission.cli.common.arguments import add_cluster
from admission.cli.common.errors import ExitCode, NotHoldingError, WrongUsageError
from admission.cli.common.running import run
from admission.cli.views.workload_view import job_of, phase
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from api.objects.workloads import WorkloadObject

# The word before the name, as kubectl takes it: queue/main.
_QUEUES = {"queue": LOCAL_QUEUES, "localqueue": LOCAL_QUEUES, "clusterqueue": CLUSTER_QUEUES}

Act = Callable[[KubeClient, argparse.Namespace, str], Awaitable[str]]


def add_target(parser: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Add the argument that names the Job or queue, and the flags of its namespace and cluster."""
    parser.add_argument("target", metavar=metavar, help=help_text)
    parser.add_argument(
        "-n", "--namespace", metavar="NS", help="its namespace (default: the context's, else default)"
    )
    add_cluster(parser)


def act(arguments: argparse.Namespace, what: Act) -> int:
    """Run the verb in the namespace of the target, and print the sentence that it returns."""
    return run(_act(arguments, what))


async def _act(arguments: argparse.Namespace, what: Act) -> int:
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:
        namespace = arguments.namespace or client.namespace or "default"
        print(await what(client, arguments, namespace))
    return ExitCode.DONE


def is_queue(target: str) -> bool:
    """Return whether the target names a queue, such as queue/main or clusterqueue/red, and no Job."""
    return target.partition("/")[0] in _QUEUES and "/" in target


async def stop_queue(client: KubeClient, target: str, namespace: str, policy: str) -> str:
    """Set the stop policy of a queue, and return what that does. Raises WrongUsageError and KubeError."""
    word, _, name = target.partition("/")
    kind = _QUEUES[word]
    body = json.dumps({"spec": {"stopPolicy": policy}}).encode()
    try:
        await client.merge_patch(kind, name, body, namespace if kind.namespaced else None)
    except NotFound as error:
        where = f" in namespace {namespace}" if kind.namespaced else ""
        raise WrongUsageError(f"there is no {kind.kind} {name}{where}") from error
    effects = {
        "None": "admits again",
        "Hold": "admits nothing more; what runs goes on",
        "HoldAndDrain": "admits nothing more, and stops what runs",
    }
    return f"{kind.kind} {name} {effects[policy]}"


async def workload_of_job(client: KubeClient, target: str, namespace: str) -> WorkloadObject:
    """Return the unfinished Workload of this name, or of the Job of this name. Raises CommandError."""
    name = target.removeprefix("job/")
    found = (await client.list(WORKLOADS, namespace, type_=WorkloadObject)).items
    own = [one for one in found if name in (one.metadata.name, job_of(one))]
    if not own:
        raise WrongUsageError(f"namespace {namespace} has no Workload {name}, nor one of a Job {name}")
    live = [one for one in own if phase(one) != "finished"]
    if not live:
        raise NotHoldingError(f"{namespace}/{name} has finished")
    return live[0]


async def set_active(client: KubeClient, workload: WorkloadObject, *, is_active: bool) -> None:
    """Activate or deactivate a Workload. Raises KubeError; Forbidden names the role that allows it."""
    meta = workload.metadata
    body = json.dumps({"spec": {"active": is_active}, "metadata": {"uid": meta.uid}}).encode()
    try:
        await client.merge_patch(WORKLOADS, meta.name, body, meta.namespace)
    except Forbidden as error:
        raise Forbidden(
            f"{error}; the ClusterRole berth-workload-editor-role allows it", status=error.status
        ) from error
