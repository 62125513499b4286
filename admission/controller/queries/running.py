"""What each caller has running at once, within a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from api.http.server import HttpError


class Running:
    """Counts what callers have running: at most `most` each.

    More is refused with a sentence, in which {} is the caller's name, and with the seconds after which it may
    ask again.
    """

    def __init__(self, *, most: int, sentence: str, seconds: int) -> None:
        self._most = most
        self._sentence = sentence
        self._seconds = seconds
        self._running: Counter[str] = Counter()

    def require_room(self, name: str) -> None:
        """Raise HttpError, 429, if the caller has no room for one more."""
        if self._running[name] >= self._most:
            retry = f"; retry in {self._seconds} s"
            raise HttpError(
                429, self._sentence.format(name) + retry, headers={"Retry-After": str(self._seconds)}
            )

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Count one while it runs. Raises HttpError, 429."""
        self.require_room(name)
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
