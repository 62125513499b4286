"""`berth store`: dump and check what Redis holds of a shard, and rebuild it from the cluster's objects."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from admission.answers.api_keys import to_api_keys
from admission.cli.commands.store_rebuild import Rebuilt, rebuild
from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.common.store_flags import add_store_access, to_store_access, to_store_keys
from admission.cli.views.tables import make_console, make_table, print_table
from api.kube.client import KubeClient
from api.kube.cluster_identity import cluster_identity
from api.parsing.times import to_rfc3339
from queues.profile.holds import Hold, Move
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.plan import PlanTable
from queues.reservations.reservations import LoggedDecision, QuotaReservation
from queues.reservations.usage_rows import UsageRow
from queues.store.inspection import InspectedStore, StoredValue
from queues.store.seal import Seal

_ACTIONS = ("dump", "check", "rebuild")
_KINDS = (
    "fence",
    "life",
    "plan",
    "reservations",
    "log",
    "request",
    "fabric",
    *(table.value for table in PlanTable),
)
# The longest text of one value: requests to the API server are long and of little use in a table.
_LONGEST_TEXT = 100
# Commands wait longer than a leader does, because no admission depends on them.
_CALL_SECONDS = 2.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "store",
        help_line="dump, check or rebuild what Redis holds",
        description=(
            "dump shows every value that Redis holds of a shard: reservations, promises, leases, held\n"
            "capacity, moves, learned run times, the decision log. check names each value that cannot be\n"
            "read, has another schema or is not Berth's, and exits with 1 if there is one. rebuild removes\n"
            "those and values that no longer match the cluster, and adds run times from finished\n"
            "Workloads; while a leader is alive it needs --force."
        ),
        examples=(
            "  berth store dump --redis redis://redis:6379/0\n"
            "  berth store dump --redis URL --only promises,leases -o json\n"
            "  berth store check --redis URL\n"
            "  berth store rebuild --redis URL --kubeconfig ~/.kube/config"
        ),
        run=_run,
    )
    parser.add_argument("action", metavar="dump|check|rebuild", help="what to do")
    parser.add_argument(
        "--redis",
        metavar="URL",
        required=True,
        help="URL as of `berth controller`, which logs that of its embedded store",
    )
    add_store_access(parser)
    parser.add_argument("--shard", default="default", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--only", metavar="KIND,…", help=f"for dump: some of {', '.join(_KINDS)}")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--force", action="store_true", help="for rebuild: proceed although a leader is alive"
    )
    parser.add_argument(
        "--namespace", metavar="NS", help="for rebuild: of the Lease (default: own or berth-system)"
    )
    add_kubeconfig(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action not in _ACTIONS:
        known = ", ".join(_ACTIONS)
        raise WrongUsageError(f"{arguments.action!r} is not an action of berth store; expected {known}")
    return run(_work(arguments, _kinds(arguments.only)))


def _kinds(text: str | None) -> frozenset[str]:
    kinds = frozenset(_KINDS) if text is None else frozenset(text.split(","))
    unknown = sorted(kinds - frozenset(_KINDS))
    if unknown:
        raise WrongUsageError(f"--only: {unknown[0]!r} is not one of {', '.join(_KINDS)}")
    return kinds


async def _work(arguments: argparse.Namespace, kinds: frozenset[str]) -> int:
    access, keys = to_store_access(arguments), to_store_keys(arguments)
    store = InspectedStore.from_url(
        arguments.redis, shard=arguments.shard, call_seconds=_CALL_SECONDS, access=access
    )
    try:
        # Without a key values are shown whether they are signed or not.
        if keys:
            store.seal = Seal(keys, cluster=await _cluster(arguments))
        # An unreachable store means exit code 3 for every action.
        await store.ping()
        if arguments.action == "rebuild":
            return _show_rebuilt(await rebuild(store, arguments), arguments.output)
        # Read everything before printing, so that a reader that stops early leaves no cursor open.
        values = [one async for one in store.values()]
    finally:
        await store.close()
    if arguments.action == "check":
        return _check(values, arguments.output)
    wanted = [one for one in values if arguments.only is None or one.kind in kinds]
    return _dump(wanted, arguments.output)


async def _cluster(arguments: argparse.Namespace) -> str:
    if arguments.cluster_id is not None:
        return str(arguments.cluster_id)
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        return await cluster_identity(client)


# --- dump -------------------------------------------------------------------------------------------------


def _dump(values: Sequence[StoredValue], output: str) -> int:
    if output == "json":
        print(json.dumps([_to_json(one) for one in values], indent=2))
        return ExitCode.DONE
    console = make_console()
    if not values:
        console.print("there is nothing of this kind in the store")
        return ExitCode.DONE
    table = make_table("KIND", "FIELD", "BYTES", "VALUE", right=("BYTES",))
    for one in values:
        # List unreadable values among the others, so that the fault appears in its place.
        text = f"! {one.problem}" if one.fault is not None else _text(one.value)
        table.add_row(one.kind, _printable(_field(one)), str(one.size_bytes), _shortened(text))
    print_table(console, table)
    return ExitCode.DONE


def _field(one: StoredValue) -> str:
    # A value outside a hash is named by its key, without the prefix that all keys share.
    return one.field or one.key.rpartition("}:")[2].partition(":")[2]


def _to_json(one: StoredValue) -> dict[str, Any]:
    value = to_api_keys(msgspec.to_builtins(one.value, builtin_types=(bytes,), str_keys=True))
    if isinstance(one.value, QuotaReservation):
        # Decode the body of a request: base64 would hide its content.
        value["write"] = one.value.write.decode(errors="replace")
    return {
        "key": _printable(one.key),
        "kind": one.kind,
        "field": _printable(one.field),
        "sizeBytes": one.size_bytes,
        "value": value,
        "fault": one.fault,
        "problem": one.problem,
    }


def _text(value: object) -> str:
    """Return a one-line text for a value."""
    match value:
        case PlannedStart():
            where = f" in {value.domain}" if value.domain else ""
            moved = f", moved {value.moves} times ({value.cause})" if value.moves else ""
            return f"starts {to_rfc3339(value.start_at)} in ClusterQueue {value.cluster_queue}{where}{moved}"
        case BackfillLease():
            behind = f" before {value.promised}" if value.promised is not None else ""
            return f"started {to_rfc3339(value.started_at)} in ClusterQueue {value.cluster_queue}{behind}"
        case Hold():
            gone = f"{len(value.victims)} evicted Workloads"
            return f"capacity of {gone} in ClusterQueue {value.cluster_queue} until {to_rfc3339(value.until)}"
        case Move():
            where = " to a better flavor" if value.is_promotion else ""
            return f"moved{where} {to_rfc3339(value.at)} under AdmissionPolicy {value.policy}"
        case QuotaReservation():
            return f"{value.verb} {value.path} by request {value.request_id} under fence {value.fence}"
        case UsageRow():
            hours = f"{value.used / 3600:.1f} GPU-hours used, {value.lost / 3600:.1f} lost"
            return f"{value.workloads} deleted Workloads: {hours}, {value.waited / 3600:.1f} hours waited"
        case LoggedDecision():
            reason = f" ({value.reason})" if value.reason else ""
            return f"{to_rfc3339(value.at)} {value.what}{reason} {value.key}: {value.message}"
        case _:
            return json.dumps(msgspec.to_builtins(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _printable(text: str) -> str:
    """Return a field with unprintable characters as escapes, because another program may have written it."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


# --- check ------------------------------------------------------------------------------------------------


def _check(values: Sequence[StoredValue], output: str) -> int:
    faulty = [one for one in values if one.fault is not None]
    if output == "json":
        print(json.dumps([_to_json(one) for one in faulty], indent=2))
    elif faulty:
        console = make_console()
        table = make_table("KEY", "FIELD", "FAULT", "PROBLEM")
        for one in faulty:
            table.add_row(_printable(one.key), _printable(one.field), str(one.fault), one.problem)
        print_table(console, table)
    else:
        print(f"all {len(values)} values can be read")
    return ExitCode.DOES_NOT_HOLD if faulty else ExitCode.DONE


# --- rebuild ----------------------------------------------------------------------------------------------


def _show_rebuilt(rebuilt: Rebuilt, output: str) -> int:
    rows = msgspec.to_builtins(rebuilt)
    if output == "json":
        print(json.dumps(to_api_keys(rows), indent=2))
    else:
        print(
            f"removed {rebuilt.unreadable} unreadable and {rebuilt.untrue} outdated values,"
            f" kept {rebuilt.kept}, learned {rebuilt.learned} from finished Workloads"
        )
    return ExitCode.DONE
