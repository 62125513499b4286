"""Log lines: an event word and fields, in words for people or as JSON."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.controller.runtime.logs import JsonFormatter, KeyValueFormatter, Log


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Give what the logger `berth.test` writes at debug, by the formatter that the test names."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    logger = logging.getLogger("berth.test")
    logger.addHandler(handler)
    level, logger.level = logger.level, logging.DEBUG
    yield stream
    logger.removeHandler(handler)
    logger.level = level


in_words = pytest.mark.parametrize("said", [KeyValueFormatter], indirect=True)
as_json = pytest.mark.parametrize("said", [JsonFormatter], indirect=True)
log = Log("berth.test")
# Lone surrogates, too: aiohttp decodes bytes that are not UTF-8 into them.
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text('a \r\n\x1b\x7f\x85\u2028\u202e\udcff="')


@in_words
@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("team-a/x", "team-a/x", id="a plain word stays as it is"),
        pytest.param(1.5, "1.5", id="so does a number"),
        pytest.param("two words", '"two words"', id="words with spaces are quoted"),
        pytest.param('say "a"', r'"say \"a\""', id="quotes are escaped"),
        pytest.param("a=b", '"a=b"', id="an equals sign is no second field"),
        pytest.param("one\ntwo", r'"one\ntwo"', id="a line stays one line"),
        pytest.param("one\rtwo", r'"one\rtwo"', id="a carriage return does not overwrite the line"),
        pytest.param("\x1b[2J", r'"\u001b[2J"', id="a terminal gets no escape sequence"),
        pytest.param("one\u2028two\x85", r'"one\u2028two\u0085"', id="line ends of Unicode are escaped"),
        pytest.param("\udcff", r'"\udcff"', id="bytes that are not UTF-8 can be written"),
        pytest.param("größe", "größe", id="letters of any language stay"),
        pytest.param("", '""', id="nothing is seen to be nothing"),
    ],
)
def test_a_value_is_distinct_from_what_is_beside_it(said: io.StringIO, value: object, want: str) -> None:
    log.info("admitted", key=value, last=1)

    assert said.getvalue().partition(" ")[2] == f"INFO admitted key={want} last=1\n"


@in_words
def test_a_fault_is_logged_with_its_traceback(said: io.StringIO) -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("fault", over="w")

    line, trace = said.getvalue().split(" traceback=")
    assert line.endswith("ERROR fault over=w")
    assert json.loads(trace).splitlines()[-1] == "ValueError: odd"


@pytest.mark.parametrize("formatter", [KeyValueFormatter(), JsonFormatter()], ids=["in words", "as JSON"])
@given(event=ANY_TEXT, value=ANY_TEXT, odd=ANY_TEXT)
def test_one_record_is_one_line_of_printable_characters(
    formatter: logging.Formatter, event: str, value: str, odd: str
) -> None:
    try:
        raise ValueError(odd)
    except ValueError:
        record = logging.LogRecord("berth.test", logging.ERROR, "f", 1, event, (), sys.exc_info())
    record.fields = {"key": value}

    line = formatter.format(record)

    assert line.isprintable()
    assert line.encode()


@as_json
def test_json_keeps_fields_and_traceback_on_one_line(said: io.StringIO) -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("fault", over="a b")

    entry = json.loads(said.getvalue())
    assert (entry["level"], entry["event"], entry["over"]) == ("ERROR", "fault", "a b")
    assert "ValueError: odd" in entry["traceback"]


@in_words
def test_what_the_level_leaves_out_is_not_written(said: io.StringIO) -> None:
    logging.getLogger("berth.test").setLevel(logging.INFO)

    log.debug("wait", workload="w")

    assert not log.shows_debug()
    assert said.getvalue() == ""
