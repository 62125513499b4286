"""The flags of the scheduler extender, alone and in a controller, and the options that they make."""

from __future__ import annotations

import argparse

import pytest

from admission.cli.commands import controller, extender
from admission.controller.http.ports import extender_process

NAMES = ["--scheduler-name", "topology-aware-scheduler", "--scheduler-name", "ai-scheduler"]


@pytest.mark.covers("002_27")
@pytest.mark.parametrize(
    ("flags", "want"),
    [
        pytest.param([], frozenset(), id="all pods"),
        pytest.param(NAMES, frozenset({"topology-aware-scheduler", "ai-scheduler"}), id="those of two names"),
    ],
)
def test_the_extender_serves(flags: list[str], want: frozenset[str]) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for command in (controller, extender):
        command.add_parser(subparsers)

    alone = extender.to_options(parser.parse_args(["extender", *flags]))
    child = extender_process(controller.to_options(parser.parse_args(["controller", *flags])), print)

    assert alone.rules.scheduler_names == want
    assert child is not None
    assert child._options.rules.scheduler_names == want
