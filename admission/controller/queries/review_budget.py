"""How many reviews clients may cause.

Reviews are expensive for the API server, and any client that reaches a port can cause one with a forged
token. So each client has a budget of its own, and all clients share another. A client that floods the port
exhausts its own budget before the shared one. Several can exhaust the shared one together; a few reviews of
each client are therefore assured, and taken from no one else. That is for users alone: there are as many
addresses as pods.
"""

from __future__ import annotations

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.token_bucket import TokenBuckets

# A page of one namespace takes three reviews, whose answers are cached for 10 s at least.
ASSURED_SECONDS = 3.0


class TooManyReviewsError(Exception):
    """A client, or all together, sent too many requests. Retry after `retry_after_seconds`."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"too many reviews; retry in {retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


class ReviewBudget:
    """The budgets of one port: each client has `burst` reviews and gets `per_second` new ones.

    Of these, `assured` are its own, with one more every `ASSURED_SECONDS`; the others count against what all
    share.
    """

    def __init__(
        self, clock: Clock, *, per_second: float = 2.0, burst: float = 20.0, assured: float = 0.0
    ) -> None:
        self._clock = clock
        self._by_client = TokenBuckets(per_second=per_second, burst=burst)
        self._assured = TokenBuckets(per_second=1 / ASSURED_SECONDS, burst=assured)
        self._in_all = TokenBuckets(per_second=50.0, burst=200.0)

    def take(self, client: str) -> None:
        """Take one review. `client` is an address, or a user once it is known. Raises TooManyReviewsError."""
        now = self._clock.monotonic()
        # In this order: a client that exceeds its own budget takes nothing from the shared one.
        wait = self._by_client.take(client, now=now)
        if not wait and self._assured.take(client, now=now):
            wait = self._in_all.take("", now=now)
        if wait:
            raise TooManyReviewsError(wait)
