"""What the shared types of arguments read, and what they refuse."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from admission.cli.common.arguments import NodeCounts, existing_file, node_counts, port, positive, speed


@pytest.mark.parametrize(
    ("read", "text", "want"),
    [
        pytest.param(node_counts, "138x8", NodeCounts(count=138, gpus_per_node=8), id="nodes by GPUs"),
        pytest.param(node_counts, "2×4", NodeCounts(count=2, gpus_per_node=4), id="the sign is read too"),
        pytest.param(node_counts, "3x0", NodeCounts(count=3, gpus_per_node=0), id="nodes without GPUs"),
        pytest.param(speed, "0.5", 0.5, id="slower than the clock"),
        pytest.param(speed, "600", 600.0, id="faster than the clock"),
        pytest.param(positive, "7", 7, id="a number"),
        pytest.param(port, "0", 0, id="any port"),
        pytest.param(port, "65535", 65535, id="the last port"),
    ],
)
def test_what_is_read(read: Callable[[str], object], text: str, want: object) -> None:
    assert read(text) == want


@pytest.mark.parametrize(
    ("read", "text", "want"),
    [
        pytest.param(node_counts, "16", "NODESxGPUS such as 16x8", id="a number is no shape"),
        pytest.param(node_counts, "0x8", "1 to 20000 nodes", id="no node at all"),
        pytest.param(node_counts, "999999x8", "1 to 20000 nodes", id="too many nodes"),
        pytest.param(node_counts, "-1x8", "NODESxGPUS", id="fewer than no nodes"),
        pytest.param(speed, "0", "above 0", id="no speed"),
        pytest.param(speed, "nan", "above 0", id="not a number"),
        pytest.param(speed, "fast", "not a speed", id="a word"),
        pytest.param(positive, "0", "1 or more", id="none"),
        pytest.param(positive, "2.5", "whole number", id="a half"),
        pytest.param(port, "65536", "not a port", id="a port too high"),
        pytest.param(port, "http", "not a port", id="a service name"),
        pytest.param(existing_file, "/nowhere/at/all", "does not exist", id="a missing file"),
        pytest.param(existing_file, "/", "is a directory", id="a directory"),
    ],
)
def test_what_is_refused(read: Callable[[str], object], text: str, want: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=want) as refusal:
        read(text)

    assert text in str(refusal.value)


def test_an_existing_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.touch()

    assert existing_file(str(file)) == file
