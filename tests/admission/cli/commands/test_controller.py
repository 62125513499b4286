"""The flags of `berth controller` and the options that they make."""

from __future__ import annotations

import argparse

from admission.cli.commands.controller import add_parser, to_options
from admission.controller.settings import Options


def test_without_flags_the_controller_is_started_by_the_defaults_of_its_options() -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())

    found = to_options(parser.parse_args(["controller"]))

    assert found == Options()
