"""A child process that answers large AdmissionReviews and ConversionReviews.

To read and check an object of 1.5 MiB takes up to 0.4 s in which a process does nothing else, threads
included, because the parser keeps Python's interpreter lock. In the process that leads that would delay the
lease and all watches.

    parent ◀── one byte when it has started ── child       (stdout)
    parent ── length, Order in MessagePack ──▶ child       (stdin)
    parent ◀── length, Reply in MessagePack ── child       (stdout)

The child starts with the first large review. Conversions have a child of their own: a list of them may take
seconds, and the creation of a Job must not wait for that. A child exits when its
stdin ends, so it always ends with its parent.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO, Literal

import msgspec

from admission.controller.http import review_answers
from admission.controller.http.conversion_answers import answer_conversion
from admission.controller.http.review_answers import Answer, Surroundings, controller_of
from admission.controller.runtime.logs import Log
from api.http.server import HttpError
from api.jobs.owners import table
from api.wire.admission_review import AdmissionRequest, read_review

log = Log("berth.webhooks")

# kube-apiserver waits 5 s (deploy/webhooks), and then closes the connection, which cancels the request.
ANSWER_SECONDS = 30.0
_LENGTH_BYTES = 4
_READY = b"R"

Way = Literal["controller", "mutate", "validate"]
WAYS: Mapping[Way, Callable[[AdmissionRequest, Surroundings], Answer]] = {
    "controller": lambda review, _: Answer(body=msgspec.json.encode(controller_of(review))),
    "mutate": review_answers.mutate,
    "validate": review_answers.check,
}


class _Order(msgspec.Struct, frozen=True):
    """`around`: None for a ConversionReview, whose answer depends on nothing else."""

    way: Way | Literal["convert"]
    body: bytes
    around: Surroundings | None


class _Refusal(msgspec.Struct, frozen=True, tag=True):
    """An answer with an error status."""

    status: int
    message: str


class _Done(msgspec.Struct, frozen=True, tag=True):
    answer: Answer


class ReviewProcess:
    """The child. The caller asks one question at a time, and calls close() at the end."""

    def __init__(self) -> None:
        # The start is a task of its own: a client that does not wait for it must not end it.
        self._start: asyncio.Task[asyncio.subprocess.Process] | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._start.result().pid if self._start is not None and self._start.done() else None

    async def answer(self, way: Way, body: bytes | bytearray, around: Surroundings) -> Answer:
        """Return the child's answer to an AdmissionReview. Raises HttpError."""
        return await self._answer(_Order(way, bytes(body), around))

    async def convert(self, body: bytes | bytearray) -> bytes:
        """Return the child's answer to a ConversionReview. Raises HttpError."""
        return (await self._answer(_Order("convert", bytes(body), None))).body

    async def _answer(self, asked: _Order) -> Answer:
        order = msgspec.msgpack.encode(asked)
        if self._start is None:
            self._start = asyncio.create_task(_started(), name="review-process")
        try:
            child = await asyncio.shield(self._start)
        except OSError as error:
            self._start = None
            raise _unanswered(error) from error
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await _exchange(child, order)
        # Its answer would be taken for that to the next question.
        except BaseException as error:
            await self.close()
            if not isinstance(error, (OSError, EOFError)):
                raise
            raise _unanswered(error) from error
        if isinstance(reply, _Refusal):
            raise HttpError(reply.status, reply.message)
        return reply.answer

    async def close(self) -> None:
        """End the child."""
        start, self._start = self._start, None
        if start is None:
            return
        child = await start
        # It answers questions alone, so a kill loses nothing.
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _unanswered(error: Exception) -> HttpError:
    log.warning("review-process-ended", error=repr(error))
    return HttpError(503, "the review was not answered; try again in a moment")


async def _started() -> asyncio.subprocess.Process:
    """Start the child; return it once it reads questions, or has ended."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C in the terminal is for the parent to handle.
        start_new_session=True,
    )
    assert child.stdout is not None
    await child.stdout.read(len(_READY))
    return child


async def _exchange(child: asyncio.subprocess.Process, order: bytes) -> _Done | _Refusal:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(_framed(order))
    await child.stdin.drain()
    length = int.from_bytes(await child.stdout.readexactly(_LENGTH_BYTES))
    reply: _Done | _Refusal = _REPLY.decode(await child.stdout.readexactly(length))
    return reply


_ORDER = msgspec.msgpack.Decoder(_Order)
_REPLY = msgspec.msgpack.Decoder(_Done | _Refusal)


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES) + message


# --- the child ---------------------------------------------------------------------------------------


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the questions end."""
    # A collection goes through all that was read so far, many times while a large object is read.
    gc.disable()
    answers.write(_READY)
    answers.flush()
    while len(prefix := questions.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        order = _ORDER.decode(questions.read(int.from_bytes(prefix)))
        if order.around is not None and order.around.external != table.external():
            table.set_external(order.around.external)
        answers.write(_framed(msgspec.msgpack.encode(_reply(order))))
        answers.flush()
        gc.collect()


def _reply(order: _Order) -> _Done | _Refusal:
    try:
        if order.way == "convert" or order.around is None:
            return _Done(Answer(body=answer_conversion(order.body)))
        return _Done(WAYS[order.way](read_review(order.body), order.around))
    except HttpError as error:
        return _Refusal(error.status, error.message)
    except ValueError as error:
        return _Refusal(400, str(error))
    # A mistake here must not end the child: the other reviews wait for it.
    except Exception as error:
        traceback.print_exc()
        return _Refusal(500, f"the review ended in {type(error).__name__}")


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
