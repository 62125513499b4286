"""Structured logs: one line of key=value pairs (or JSON) on stderr, with an event word first.

`log.info("admitted", workload=key, queue=name)` prints
`2026-01-31T12:00:00.123Z INFO admitted workload=team-a/x queue=gpu`.

Names, paths and messages come from others. So one record is one line of printable characters, whatever they
contain: a line feed cannot start a forged record, and an escape sequence does not reach a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

_QUOTED = set(' "=')


class Log:
    """A logger whose calls take an event word and fields. Values are printed with str()."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def shows_debug(self) -> bool:
        """Return whether debug() writes anything. Ask first if the text is expensive to build."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, **fields: object) -> None:
        """Log details for debugging."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log what an operator may want to read later."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a condition that an operator should look at."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure of this controller."""
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log a failure of this controller, with the traceback of the exception being handled."""
        self._emit(logging.ERROR, event, fields, with_traceback=True)

    def _emit(
        self, level: int, event: str, fields: dict[str, object], *, with_traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=with_traceback)


class KeyValueFormatter(logging.Formatter):
    """Formats `time LEVEL event key=value ...`.

    Values with spaces or unprintable characters are quoted as JSON strings, and so is the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the field `traceback` at its end if there is one."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = getattr(record, "fields", {})
        pairs = "".join(f" {key}={_text(value)}" for key, value in fields.items())
        trace = f" traceback={_as_json(self.formatException(record.exc_info))}" if record.exc_info else ""
        said = record.getMessage()
        # Words with spaces and quotes are not quoted here: some events are whole sentences.
        event = said if said.isprintable() else _as_json(said)[1:-1]
        return f"{stamp.replace('+00:00', 'Z')} {record.levelname} {event}{pairs}{trace}"


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, the traceback included as a field."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {key: str(value) for key, value in getattr(record, "fields", {}).items()}
        entry = {
            "time": stamp.replace("+00:00", "Z"),
            "level": record.levelname,
            "event": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _as_json({**entry, **fields})


def _text(value: object) -> str:
    text = str(value)
    # Most values are short words. isprintable() is false for line ends of all kinds, escapes and surrogates.
    plain = text and text.isprintable() and _QUOTED.isdisjoint(text)
    return text if plain else _as_json(text)


def _as_json(value: object) -> str:
    # JSON escapes what is not ASCII, except DEL.
    return json.dumps(value).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What `configure` takes, for a process that starts another one."""

    level: str = "info"
    as_json: bool = False


def configure(*, level: str = "info", as_json: bool = False) -> None:
    """Send all logs to stderr in one format. `level` is debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
