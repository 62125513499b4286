"""Whether a new leader is blind: the store may lack what an earlier leader was about to write.

That leader may have died together with the last writes of the store, while the API server still works on its
request. Then the store says nothing of quota that is about to be taken. A blind leader decides only when no
such request can take effect any more (`admission.controller.leadership.takeover`).
"""

from __future__ import annotations

from queues.reservations.plan import Store
from queues.reservations.reservations import ReservationError


async def is_blind(store: Store, *, fence: int) -> bool:
    """Return whether reservations of earlier leaders may exist that the store does not show.

    `fence` is that of the new leader, whether the store has been presented it or not. True where the store
    is lost or empty, has restarted or been replaced since a leader vouched for it, or has not seen the fence
    before ours. What the store cannot show is a leader that decided without it: that one's Lease says so.
    """
    try:
        life, highest = await store.life(), await store.highest_fence()
    except ReservationError:
        return True
    # Each leader raises the fence by one, so a gap is a leader that never reached the store.
    return highest is None or highest < fence - 1 or not life.is_complete
