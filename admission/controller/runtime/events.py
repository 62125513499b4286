"""Kubernetes Events of the controller, each sent once in a while as long as its cause persists.

`api.kube.events` sends them in the background and combines repetitions for the API server. What is looked at
again and again (a Workload that cannot be started, for example) would still fill its queue.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from admission.decisions.api_writes import Event
from api.kube.events import EventRecorder
from api.object_events import EventType

# An Event whose cause persists is sent again after this long, not at every look.
REPEAT_SECONDS = 600.0
# A Warning that several writes within this time carry is sent once: where two reasons for waiting take turns,
# each write repeats the same words.
SAME_WARNING_SECONDS = 10.0
MAX_REMEMBERED = 10_000


class EventReporter:
    """Sends Events. It never blocks and never fails. `observe` is called with each Event that is sent."""

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        observe: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self._recorder = recorder
        self._monotonic = monotonic
        self._observe = observe
        self._sent_at: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    @property
    def sent(self) -> int:
        """Return how many requests with Events have been sent since the start."""
        return self._recorder.sent

    @property
    def dropped(self) -> int:
        """Return how many Events were dropped under load since the start."""
        return self._recorder.dropped

    def send(self, event: Event, *, is_once: bool = True) -> None:
        """Send a Kubernetes Event. With `is_once` the same Event is sent again only after REPEAT_SECONDS.

        Without it a Warning is sent again after SAME_WARNING_SECONDS, and any other Event each time.
        """
        # The uid is part of the identity: the same sentence about another Job is another Event.
        identity = (event.regarding.uid, event.reason, event.note)
        at = self._monotonic()
        rest = REPEAT_SECONDS if is_once else SAME_WARNING_SECONDS if event.type is EventType.WARNING else 0.0
        if at - self._sent_at.get(identity, -REPEAT_SECONDS) < rest:
            return
        # Moved to the end, so that an Event that is sent repeatedly is not forgotten first.
        self._sent_at[identity] = at
        self._sent_at.move_to_end(identity)
        if len(self._sent_at) > MAX_REMEMBERED:
            self._sent_at.popitem(last=False)
        self._observe(event)
        self._recorder.record(
            event.regarding,
            event.type,
            event.reason,
            event.note,
            event.action,
            is_folded=event.is_folded,
        )
