"""Where an object names its pod group and its prebuilt Workload, with and without Kueue's feature gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from api import keys
from api.identifiers import pod_group, prebuilt_workload, set_reads_annotations

LONG = "w" * 64


@pytest.fixture(autouse=True)
def reads_annotations() -> Iterator[None]:
    """Read annotations again afterwards."""
    yield
    set_reads_annotations(True)


@pytest.mark.parametrize(
    ("label", "annotation", "want", "want_without"),
    [
        pytest.param("l", "a", "a", "l", id="the annotation comes first, if the gate is on"),
        pytest.param("l", "", "l", "l", id="an empty annotation names nothing"),
        pytest.param("", "a", "a", "", id="without the gate the annotation is not read"),
        pytest.param("", "", "", "", id="neither names one"),
    ],
)
@pytest.mark.parametrize(
    ("key", "read"), [(keys.POD_GROUP_NAME, pod_group), (keys.PREBUILT_WORKLOAD_NAME, prebuilt_workload)]
)
def test_a_group_or_workload_is_named_by(
    key: str,
    read: Callable[[dict[str, str], dict[str, str]], str],
    label: str,
    annotation: str,
    want: str,
    want_without: str,
) -> None:
    assert read({key: label}, {key: annotation}) == want
    set_reads_annotations(False)
    assert read({key: label}, {key: annotation}) == want_without


def test_a_workload_whose_name_is_too_long_for_a_label_is_named_by_the_annotation_in_any_case() -> None:
    set_reads_annotations(False)

    assert prebuilt_workload({}, {keys.PREBUILT_WORKLOAD_NAME: LONG}) == LONG
    assert prebuilt_workload({keys.PREBUILT_WORKLOAD_NAME: "l"}, {keys.PREBUILT_WORKLOAD_NAME: LONG}) == "l"
