"""Every Redis key of Berth, and the field names inside the hash of reservations.

All keys of a shard share one hash tag, the text in braces. They are therefore in one slot of a Redis Cluster,
and one script may use them all.
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
        """The prefix of all keys of the shard."""
        # The braces are Redis Cluster's hash tag. Without them one script's keys could be on several nodes.
        return f"{PREFIX}:{{{self.shard}}}:"

    @property
    def fence(self) -> str:
        """A string: the highest fence presented to the store."""
        return f"{self.prefix}fence"

    @property
    def life(self) -> str:
        """A string: the life of the server that holds all that was acknowledged."""
        return f"{self.prefix}life"

    @property
    def reservations(self) -> str:
        """A hash from the field of a reservation's id (`to_field`) to its encoded value."""
        return f"{self.prefix}reservations"

    def reservation(self, field: str) -> str:
        """The place of one reservation, for its signature."""
        return f"{self.reservations} {field}"

    def row(self, table: PlanTable, field: str) -> str:
        """The place of one row of the plan, for its signature."""
        return f"{self.table(table)} {field}"

    @property
    def log(self) -> str:
        """A stream: the decision log, the newest entry last."""
        return f"{self.prefix}log"

    @property
    def plan(self) -> str:
        """A string: the version of the plan, `PlanVersion.text`."""
        return f"{self.prefix}plan"

    def table(self, table: PlanTable) -> str:
        """A hash: one table of the plan. `queues.store.plan_rows` defines its fields and rows."""
        return f"{self.prefix}{table}"

    def fabric(self, namespace: str, job: str) -> str:
        """A string that expires: the fabric in which a training job is expected."""
        return f"{self.prefix}fabric:{namespace}/{job}"

    def request(self, request_id: str) -> str:
        """A string that expires: the answer to a commit."""
        return f"{self.prefix}request:{request_id}"


def to_field(id_: ReservationId) -> str:
    """Return the field of a reservation: namespace/name/uid, none of which can contain a slash."""
    (namespace, name), uid = id_
    return f"{namespace}/{name}/{uid}"


def to_id(field: str) -> ReservationId:
    """Return the reservation id of a field. Raises ValueError where the field was not made by `to_field`."""
    # Unpacking raises ValueError for another number of parts.
    namespace, name, uid = field.split("/")
    return WorkloadKey(namespace, name), uid
