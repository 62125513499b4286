"""The flags of `berth controller` and the options that they make."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from admission.cli.commands.controller import add_parser, to_options
from admission.cli.common.errors import WrongUsageError
from admission.controller.settings import Options


def test_without_flags_the_controller_is_started_by_the_defaults_of_its_options() -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())

    found = to_options(parser.parse_args(["controller"]))

    assert found == Options()


def test_a_configuration_may_not_hold_back_pods_of_the_namespace_that_the_flag_names(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\n"
        "kind: Configuration\n"
        "integrations: {frameworks: [pod]}\n"
        "managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: queues}}\n"
    )
    arguments = parser.parse_args(["controller", "--namespace", "queues", "--config", str(config)])

    with pytest.raises(WrongUsageError, match="must not match the namespace queues"):
        to_options(arguments)
