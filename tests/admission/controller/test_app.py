"""A controller that is built and listens, without a cluster."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from admission.controller.app import Controller
from admission.controller.settings import Options
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.kubeconfig import Endpoint
from tests.metrics import served_names

OPTIONS = Options(http_port=-1, metrics_port=0, extender_port=-1, visibility_port=-1, webhook_port=-1)


def read(url: str) -> str:
    with urlopen(url, timeout=30.0) as answer:
        text: str = answer.read().decode()
    return text


async def test_what_a_port_refuses_is_counted_by_its_name_and_the_reason() -> None:
    nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
    controller = Controller(KubeClient(nowhere), OPTIONS)

    async with AsyncExitStack() as stack:
        urls = await controller.listen(stack)
        for _ in range(2):
            with pytest.raises(HTTPError, match="404"):
                await asyncio.to_thread(read, f"{urls['metrics']}/nothing")
        text = await asyncio.to_thread(read, f"{urls['metrics']}/metrics")

    labels = 'port="metrics",reason="not-found",replica_role="follower"'
    assert f"berth_http_requests_refused_total{{{labels}}} 2.0" in text


async def test_a_controller_serves_the_metrics_that_rules_and_docs_are_checked_against() -> None:
    nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
    controller = Controller(KubeClient(nowhere), OPTIONS)

    async with AsyncExitStack() as stack:
        urls = await controller.listen(stack)
        text = await asyncio.to_thread(read, f"{urls['metrics']}/metrics")

    assert frozenset(re.findall(r"^# HELP (\w+)", text, flags=re.MULTILINE)) == served_names()
