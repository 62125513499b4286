"""`berth policy show`: an AdmissionPolicy as it is in force, or the one that governs a ClusterQueue."""

from __future__ import annotations

import argparse

from admission.cli.common.arguments import Subparsers, add_cluster, add_command
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.listing.output import print_bodies
from admission.cli.listing.policies import read_policies
from admission.cli.views.effective_policy import Policies, effective_body, effective_text
from api.kube.client import KubeClient
from api.kube.resources import CLUSTER_QUEUES
from api.objects.queues import ClusterQueueObject
from api.parsing.problems import SpecError
from api.queueing import ClusterQueue
from api.specs import to_cluster_queue

_CLUSTER_QUEUE = ("clusterqueue", "clusterqueues", "cq")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "policy",
        help_line="show an AdmissionPolicy as it is in force, with what it inherits",
        description=(
            "Show an AdmissionPolicy with the defaults of its fields, the sections that it inherits and\n"
            "from which policy, the sections that are off, and the ClusterQueues that it governs or that\n"
            "another one governs instead. clusterqueue/NAME is the policy that governs this ClusterQueue.\n"
            "Exit code 1 means that the policy is not in force; the first lines say why."
        ),
        examples=(
            "  berth policy show recommended\n"
            "  berth policy show clusterqueue/team-a\n"
            "  berth policy show clusterqueue/team-a -o json | jq .spec.preemption"
        ),
        run=_run,
    )
    parser.add_argument("action", metavar="show", help="what to do")
    parser.add_argument(
        "target", metavar="POLICY|clusterqueue/NAME", help="the policy, or a ClusterQueue that it governs"
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action != "show":
        raise WrongUsageError(f"{arguments.action!r} is not an action of berth policy; expected show")
    return run(_show(arguments))


async def _show(arguments: argparse.Namespace) -> int:
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:
        policies = Policies(await read_policies(client), await _queues(client))
    kind, slash, name = arguments.target.rpartition("/")
    if slash:
        if kind not in _CLUSTER_QUEUE:
            raise WrongUsageError(f"{arguments.target!r} is neither a policy nor clusterqueue/NAME")
        if not policies.has_queue(name):
            raise WrongUsageError(f"there is no ClusterQueue {name!r}")
        queue, name = name, policies.governing(name)
        if name is None:
            print(f"no AdmissionPolicy governs ClusterQueue {queue}: it is decided as by Kueue")
            return ExitCode.DONE
    if name not in policies.names:
        known = ", ".join(policies.names) or "none"
        raise WrongUsageError(f"there is no AdmissionPolicy {name!r}; there is: {known}")
    found = policies.show(name)
    if arguments.output == "table":
        print(effective_text(found))
    else:
        print_bodies(effective_body(found), arguments.output)
    return ExitCode.DOES_NOT_HOLD if found.problem else ExitCode.DONE


async def _queues(client: KubeClient) -> list[ClusterQueue]:
    """Return the ClusterQueues; of one with a faulty spec its name and labels still say what selects it."""
    found = []
    for one in (await client.list(CLUSTER_QUEUES, type_=ClusterQueueObject)).items:
        try:
            found.append(to_cluster_queue(one))
        except SpecError:
            found.append(ClusterQueue(name=one.metadata.name, labels=one.metadata.labels or {}))
    return found
