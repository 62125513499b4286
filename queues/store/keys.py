"""Every Redis key of Berth, in one place.

All keys of a shard share one hash tag, the braces' content: so they lie in one slot of a Redis Cluster, and
one script may touch them all. Field names inside the reservations hash are made here too.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.workload import WorkloadKey
from queues.reservations.plan import PlanTable
from queues.reservations.reservations import ReservationId

PREFIX = "berth"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one shard."""

    shard: str

    @property
    def prefix(self) -> str:
        """What all of them begin with."""
        # The braces are Redis Cluster's hash tag; without them the keys of one script would
        # lie on several nodes.
        return f"{PREFIX}:{{{self.shard}}}:"

    @property
    def fence(self) -> str:
        """A string: the highest fence shown to the store."""
        return f"{self.prefix}fence"

    @property
    def reservations(self) -> str:
        """A hash: `to_field` of a reservation's id to its encoded value."""
        return f"{self.prefix}reservations"

    @property
    def log(self) -> str:
        """A stream: the decision log, the newest last."""
        return f"{self.prefix}log"

    @property
    def plan(self) -> str:
        """A string: the version of the plan, `PlanVersion.text`."""
        return f"{self.prefix}plan"

    def table(self, table: PlanTable) -> str:
        """A hash: a table of the plan, `queues.store.plan_rows` says what its fields and rows are."""
        return f"{self.prefix}{table}"

    def request(self, request_id: str) -> str:
        """A string that expires: what a commit was answered."""
        return f"{self.prefix}request:{request_id}"


def to_field(id_: ReservationId) -> str:
    """Return the field of a reservation: namespace/name/uid, none of which can contain a slash."""
    (namespace, name), uid = id_
    return f"{namespace}/{name}/{uid}"


def to_id(field: str) -> ReservationId:
    """Return the reservation's id of a field. Raises ValueError where it is none of ours."""
    # A ValueError for another number of parts as well.
    namespace, name, uid = field.split("/")
    return WorkloadKey(namespace, name), uid
