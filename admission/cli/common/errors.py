"""How a command ends: the exit codes, and the errors that carry them.

0    success
1    the answer is negative: Jobs lost, quota exceeded, not admitted
2    wrong usage or input
3    the API server or the store cannot be reached, or refuses
130  interrupted
"""

from __future__ import annotations

import os
import traceback
from enum import IntEnum

# If this variable is set to any value, an unexpected error prints its traceback.
_TRACEBACK_VARIABLE = "BERTH_TRACEBACK"


class ExitCode(IntEnum):
    """The exit codes that all commands share."""

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
    """The answer is negative: what the command checked or waited for is not the case."""

    exit_code = ExitCode.DOES_NOT_HOLD


def is_broken_pipe(error: BaseException) -> bool:
    """Return whether the reader closed our output; the error may be wrapped in the group of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def describe(error: BaseException) -> tuple[str, int]:
    """Return a one-line message and the exit code for the error that ended a command."""
    known = _find_known(error)
    if known is None and os.environ.get(_TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    message, code = known or _unforeseen(error)
    # A message may contain line breaks, but the output must be one line.
    return " ".join(message.split()), code


def _find_known(error: BaseException) -> tuple[str, int] | None:
    """Return message and exit code of an expected error or the first such error of a group, else None."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_find_known, error.exceptions)), None)
    if isinstance(error, CommandError):
        return str(error), error.exit_code
    # Imported late, and one after the other: most commands need these modules only if such an error occurs.
    from api.kube.errors import InvalidKubeconfig, KubeError

    if isinstance(error, InvalidKubeconfig):
        return error.message, ExitCode.WRONG_USAGE
    if isinstance(error, KubeError):
        return str(error), ExitCode.UNREACHABLE

    from admission.controller.leadership.kueue_guard import LiveKueue
    from api.http.errors import ListenError
    from queues.reservations.reservations import BadStoreUrl, ReservationError

    if isinstance(error, BadStoreUrl | ListenError):
        return str(error), ExitCode.WRONG_USAGE
    # Neither a fault in Berth nor in the input: another controller manages the cluster.
    if isinstance(error, LiveKueue):
        return str(error), ExitCode.DOES_NOT_HOLD
    if isinstance(error, ReservationError):
        return str(error), ExitCode.UNREACHABLE
    return None


def _unforeseen(error: BaseException) -> tuple[str, int]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    hint = f"this is a fault in Berth; {_TRACEBACK_VARIABLE}=1 shows where"
    return f"{type(error).__name__}: {error} ({hint})", ExitCode.DOES_NOT_HOLD
