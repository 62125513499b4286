"""Log lines: an event word and fields, in words for people or as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

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

    first, *others = said.getvalue().splitlines()
    assert first.endswith("ERROR fault over=w")
    assert others[-1] == "ValueError: odd"


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
