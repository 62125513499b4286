"""A copy of the process that stays for a while: what it has computed for one question serves the next.

A list of thousands of Workloads needs the order of all queues. A copy for each question would compute that
each time, and the operating system would copy the same memory each time. So questions go to one copy:

    parent ── fork ──▶ copy      answers what it is asked, and keeps what it has computed
    parent ── fork ──▶ next      begun half a second later; takes over when it is ready
    parent ◀─ pipe ──  answers

An answer is then as old as the copy, which serves for `MOST_AGE_SECONDS` once it is ready, and on while a
next one that was begun in that time gets ready. Where little is known, nothing is kept and each question gets
a copy of its own: exact answers are cheap there. `as_of` says what an answer knows at least, so that a client
that is told of changes can tell whether it has seen one. A copy is only followed by a younger one, so neither
goes back.

While questions come, copies succeed each other, and so each finds its predecessor's work done. Ten seconds
after the last question the copy ends.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from admission.controller.queries.copies import (
    MOST_SECONDS,
    CopyFailedError,
    answer_of,
    end,
    expire_after,
    fork,
    result_of,
    write_all,
)
from admission.controller.runtime.clock import Clock

StateT = TypeVar("StateT")
T = TypeVar("T")
# The age at which the next copy is made. Twice a second costs the loop some hundredths of its time.
RENEWAL_SECONDS = 0.5
# Longer, since the loop may come late to make the next one where processors are busy.
MOST_AGE_SECONDS = 1.0
# After the last question: longer than a page or a watch waits before it asks again.
KEPT_SECONDS = 10.0
_REAP_SECONDS = 1.0
_LENGTH = struct.Struct("!I")
_READY = b"!"


@dataclass(slots=True)
class _Copy:
    """`serves_until`: infinite until it is ready."""

    pid: int
    questions: int
    answers: int
    born_at: float
    generation: int
    serves_until: float

    @property
    def is_ready(self) -> bool:
        return self.serves_until < math.inf

    def close(self) -> None:
        """Close its pipes, upon which it ends. It still has to be reaped by `end`."""
        os.close(self.questions)
        os.close(self.answers)


class StandingCopy(Generic[StateT]):
    """Asks questions in a copy that is kept, one at a time.

    `state` returns what questions are asked of; it is called in the copy, once. `prepare` computes ahead what
    most of them need. `generation` counts changes. `is_large`: whether answers may be somewhat old.
    """

    def __init__(
        self,
        state: Callable[[], StateT],
        prepare: Callable[[StateT], object],
        clock: Clock,
        *,
        generation: Callable[[], int],
        is_large: Callable[[], bool],
    ) -> None:
        self._state = state
        self._prepare = prepare
        self._clock = clock
        self._generation = generation
        self._is_large = is_large
        self._turn = asyncio.Lock()
        self._present: _Copy | None = None
        self._next: _Copy | None = None
        self._asking: asyncio.Task[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = 0.0

    def as_of(self) -> int:
        """Return the generation that answers to questions from now on show, or a later one."""
        oldest = self._serving() or self._next
        return self._generation() if oldest is None else oldest.generation

    async def ask(self, question: Callable[[StateT], T]) -> T:
        """Return what the question returns in the copy, or raise what it raises there.

        Question, result and exception have to be picklable. Raises CopyFailedError.
        """
        raw = pickle.dumps(question)
        await self._turn.acquire()
        # It outlives an asker that gives up: its answer, left unread, would be taken for the next question's.
        self._asking = asyncio.create_task(self._answer(raw))
        # Where it gives up, what went wrong is not asked for.
        self._asking.add_done_callback(lambda asking: asking.cancelled() or asking.exception())
        return result_of(await asyncio.shield(self._asking))

    def close(self) -> None:
        """End all copies."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
        for copy in filter(None, (self._present, self._next)):
            asyncio.get_running_loop().remove_reader(copy.answers)
            copy.close()
            end(copy.pid)
        self._present = self._next = None

    async def _answer(self, raw: bytes) -> bytes:
        """Ask the copy, and then give the turn to the next question."""
        try:
            self._asked_at = self._clock.monotonic()
            found = await _exchange(self._copy(), raw)
            if not self._is_large():
                self._let_go()
            # Without another question, nothing else would do it.
            self._take_over()
            return found
        except BaseException:
            self._replace(None)
            raise
        finally:
            self._turn.release()

    def _copy(self) -> _Copy:
        """Return the copy to be asked: the next one if it is ready, else the present one if it serves."""
        if not self._is_large():
            self._let_go()
        elif self._timer is None:
            self._renew_later()
        self._take_over()
        copy = self._serving()
        if copy is None:
            # The next one is older than the one that is started here.
            self._let_go()
            copy = self._present = self._start(is_prepared=False)
        return copy

    def _serving(self) -> _Copy | None:
        """Return the present copy unless its time is over. A next one that was begun in time prolongs it."""
        at = self._clock.monotonic() if self._next is None else self._next.born_at
        return self._present if self._present is not None and at <= self._present.serves_until else None

    def _let_go(self) -> None:
        self._replace(None)
        self._drop_next()

    def _replace(self, copy: _Copy | None) -> None:
        former, self._present = self._present, copy
        if former is not None:
            _retire(former)

    # --- the next copy -----------------------------------------------------------------------------------

    def _renew_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(RENEWAL_SECONDS, self._renew)

    def _renew(self) -> None:
        """Begin to make the next copy, or end both if they are not wanted any more."""
        self._timer = None
        now = self._clock.monotonic()
        if self._is_large() and now - self._asked_at <= KEPT_SECONDS:
            # It was not taken over in time, because the present one is busy.
            if self._next is not None and now > self._next.serves_until:
                self._drop_next()
            if self._next is None:
                self._begin_next()
        elif not self._turn.locked():
            self._let_go()
            return
        self._renew_later()

    def _begin_next(self) -> None:
        # If it cannot be made, the next question says why.
        with suppress(CopyFailedError):
            self._next = self._start(is_prepared=True)
            asyncio.get_running_loop().add_reader(self._next.answers, self._note_ready)

    def _note_ready(self) -> None:
        """Let the next copy take over: now, or before the next question if the present one is busy."""
        assert self._next is not None, "it is not read without one"
        asyncio.get_running_loop().remove_reader(self._next.answers)
        if not os.read(self._next.answers, len(_READY)):
            self._drop_next()
            return
        self._next.serves_until = self._clock.monotonic() + MOST_AGE_SECONDS
        if not self._turn.locked():
            self._take_over()

    def _take_over(self) -> None:
        """Ask the next copy from now on if it is ready."""
        if self._next is not None and self._next.is_ready:
            copy, self._next = self._next, None
            self._replace(copy)

    def _drop_next(self) -> None:
        copy, self._next = self._next, None
        if copy is not None:
            _retire(copy)

    def _start(self, *, is_prepared: bool) -> _Copy:
        to_copy, to_parent = os.pipe(), os.pipe()
        try:
            pid = fork(
                lambda: self._serve(to_copy[0], to_parent[1], is_prepared=is_prepared),
                keep={to_copy[0], to_parent[1]},
                is_leader=True,
            )
        except CopyFailedError:
            os.close(to_copy[1])
            os.close(to_parent[0])
            raise
        finally:
            os.close(to_copy[0])
            os.close(to_parent[1])
        now = self._clock.monotonic()
        until = math.inf if is_prepared else now + MOST_AGE_SECONDS
        return _Copy(pid, to_copy[1], to_parent[0], now, self._generation(), until)

    def _serve(self, questions: int, answers: int, *, is_prepared: bool) -> None:
        """Answer questions until the parent closes its end. Runs in the copy."""
        state = self._state()
        if is_prepared:
            self._prepare(state)
            write_all(answers, _READY)
        with os.fdopen(questions, "rb") as file:
            while head := file.read(_LENGTH.size):
                raw = file.read(*_LENGTH.unpack(head))
                expire_after(MOST_SECONDS)
                # Written by our own code into a pipe that no other process has.
                question = pickle.loads(raw)
                answer = answer_of(lambda question=question: question(state))  # type: ignore[misc]
                write_all(answers, _LENGTH.pack(len(answer)) + answer)


def _retire(copy: _Copy) -> None:
    """Close a copy, and reap it when it has had time to end: until then the loop would wait."""
    loop = asyncio.get_running_loop()
    # Of a next one that is ready, or of one that was asked, nothing is read any more, which is no error here.
    loop.remove_reader(copy.answers)
    copy.close()
    loop.call_later(_REAP_SECONDS, end, copy.pid)


async def _exchange(copy: _Copy, question: bytes) -> bytes:
    """Return the answer to a question, empty if the copy has ended."""
    loop, found, done = asyncio.get_running_loop(), bytearray(), asyncio.Event()
    os.set_blocking(copy.answers, False)

    def take() -> None:
        chunk = os.read(copy.answers, 1 << 20)
        found.extend(chunk)
        if not chunk or _is_whole(found):
            done.set()

    loop.add_reader(copy.answers, take)
    try:
        # A question is far smaller than what a pipe holds, and the pipe is empty: this does not wait.
        with suppress(BrokenPipeError):
            write_all(copy.questions, _LENGTH.pack(len(question)) + question)
        await done.wait()
    finally:
        loop.remove_reader(copy.answers)
    if not _is_whole(found):
        raise CopyFailedError
    return bytes(found[_LENGTH.size :])


def _is_whole(found: bytearray) -> bool:
    size = _LENGTH.size
    return len(found) >= size and len(found) == size + _LENGTH.unpack_from(found)[0]
