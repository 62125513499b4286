"""Lists at a server that refuses requests, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing

import msgspec
import pytest

from api.kube.errors import TooManyRequests
from api.kube.listing import ATTEMPTS_AT_PAGE, pages
from tests.admission.controller.virtualtime import run_virtually

PAGES = 30


async def fetch(path: str, query: Mapping[str, str]) -> bytes:
    """Return the page that the token names, one item on each."""
    number = int(query.get("continue", "0"))
    token = {"continue": str(number + 1)} if number + 1 < PAGES else {}
    return msgspec.json.encode({"metadata": {"resourceVersion": "7", **token}, "items": [number]})


def test_a_list_of_many_pages_is_read_once_at_a_server_that_answers_429_to_half_of_all_requests() -> None:
    chance = random.Random(2)

    async def refuse_half(path: str, query: Mapping[str, str]) -> bytes:
        if chance.random() < 0.5:
            raise TooManyRequests("later", status=429, retry_after_seconds=2.0)
        return await fetch(path, query)

    async def scenario() -> list[int]:
        async with aclosing(pages(refuse_half, "/things", {})) as stream:
            return [int(bytes(raw)) async for page in stream for raw in page.items]

    assert run_virtually(scenario()) == list(range(PAGES))


def test_a_page_that_is_refused_again_and_again_is_an_error_after_as_long_as_the_server_asked() -> None:
    async def refuse(path: str, query: Mapping[str, str]) -> bytes:
        raise TooManyRequests("later", status=429, retry_after_seconds=3.0)

    async def scenario() -> float:
        async with aclosing(pages(refuse, "/things", {})) as stream:
            with pytest.raises(TooManyRequests):
                await anext(stream)
        return asyncio.get_running_loop().time()

    assert run_virtually(scenario()) == pytest.approx(3.0 * (ATTEMPTS_AT_PAGE - 1))
