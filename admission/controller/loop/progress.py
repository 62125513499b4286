"""Progress of the control loop: since when it works on a turn that has not ended.

A turn takes in what has arrived and acts on it. It ends by itself within moments, whatever the API server and
the store answer: writes are not awaited, and each call of the store has a timeout. Only a pass over all
objects may take longer, where they are many and the processor is another's: it says that it goes on. A turn
that ends by an unforeseen error has not done its work either, so the next turn continues its time.
"""

from __future__ import annotations

from admission.controller.runtime.clock import Clock


class Progress:
    """Whether the control loop finishes what it begins. Times are those of a clock that counts suspends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When the first turn began that was not finished; None while the loop has nothing to do.
        self._since: float | None = None

    def begin(self) -> None:
        """Note that a turn begins."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def go_on(self) -> None:
        """Note that the turn gets on with work of a known size, however long it takes on a busy machine."""
        if self._since is not None:
            self._since = self._clock.monotonic()

    def finish(self) -> None:
        """Note that the turn has done its work."""
        self._since = None

    @property
    def unfinished_seconds(self) -> float:
        """Return for how long no turn has been finished although there is work; 0 between turns."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since
