"""How a command ends: the exit codes, and the errors that carry them.

0    done
1    what was asked does not hold: Jobs lost, quota exceeded, not admitted
2    wrong usage or input
3    the API server or the store cannot be reached, or refuses
130  interrupted
"""

from __future__ import annotations

import os
import traceback
from enum import IntEnum

# Set to anything, it shows the traceback of an error that nobody foresaw.
_TRACEBACK_VARIABLE = "BERTH_TRACEBACK"


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    DOES_NOT_HOLD = 1
    WRONG_USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command with one sentence on stderr and `exit_code`."""

    exit_code = ExitCode.DOES_NOT_HOLD


class WrongUsageError(CommandError):
    """A flag, an argument or a file that cannot be used."""

    exit_code = ExitCode.WRONG_USAGE


class UnreachableError(CommandError):
    """The API server or the store cannot be reached, or refuses."""

    exit_code = ExitCode.UNREACHABLE


class NotHoldingError(CommandError):
    """What was asked for does not hold."""

    exit_code = ExitCode.DOES_NOT_HOLD


def is_broken_pipe(error: BaseException) -> bool:
    """Return whether the reader of our output has left, alone or in the error of a group of tasks."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def describe(error: BaseException) -> tuple[str, int]:
    """Return one line for people, and the exit code, for whatever ended a command."""
    known = _find_known(error)
    if known is None and os.environ.get(_TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    message, code = known or _unforeseen(error)
    # Several lines in a message are its author's oversight, not the reader's business.
    return " ".join(message.split()), code


def _find_known(error: BaseException) -> tuple[str, int] | None:
    """Return message and code of an error that somebody foresaw; of a group the first such one."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_find_known, error.exceptions)), None)
    if isinstance(error, CommandError):
        return str(error), error.exit_code
    # Late: these import what most commands need only when they already run.
    from api.kube.errors import InvalidKubeconfig, KubeError
    from queues.reservations.reservations import BadStoreUrl, ReservationError

    if isinstance(error, InvalidKubeconfig):
        return error.message, ExitCode.WRONG_USAGE
    if isinstance(error, BadStoreUrl):
        return str(error), ExitCode.WRONG_USAGE
    if isinstance(error, KubeError | ReservationError):
        return str(error), ExitCode.UNREACHABLE
    return None


def _unforeseen(error: BaseException) -> tuple[str, int]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    hint = f"this is a fault in Berth; {_TRACEBACK_VARIABLE}=1 shows where"
    return f"{type(error).__name__}: {error} ({hint})", ExitCode.DOES_NOT_HOLD
