"""How many reviews of tokens clients may cause.

Reviews are expensive for the API server, and any client that reaches a port can cause one with a forged
token. So each address has a budget of its own, and all addresses share another. A client that floods the port
exhausts its own budget before the shared one.
"""

from __future__ import annotations

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.token_bucket import TokenBuckets


class TooManyReviewsError(Exception):
    """The address, or all addresses together, sent too many requests. Retry after `retry_after_seconds`."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"too many tokens to review; retry in {retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


class ReviewBudget:
    """The budgets of one port: each client has `burst` reviews and gets `per_second` new ones."""

    def __init__(self, clock: Clock, *, per_second: float = 2.0, burst: float = 20.0) -> None:
        self._clock = clock
        self._by_client = TokenBuckets(per_second=per_second, burst=burst)
        self._in_all = TokenBuckets(per_second=50.0, burst=200.0)

    def take(self, client: str) -> None:
        """Take one review. `client` is an address, or a user once it is known. Raises TooManyReviewsError."""
        now = self._clock.monotonic()
        # In this order: a client that exceeds its own budget takes nothing from the shared one.
        wait = self._by_client.take(client, now=now) or self._in_all.take("", now=now)
        if wait:
            raise TooManyReviewsError(wait)
