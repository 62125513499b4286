"""Selectors: which objects they select, and which texts are malformed."""

from __future__ import annotations

from typing import Any

import pytest

from api.kube.embedded.apply.errors import ApiError
from api.kube.embedded.kinds.selectors import field_selector, label_selector, matches_labels


@pytest.mark.parametrize(
    ("text", "labels", "want"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a=1", {"a": "2"}, False),
        ("a==1", {"a": "1"}, True),
        ("a=", {"a": ""}, True),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("! a", {}, True),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,2)", {}, False),
        ("a notin (1,2)", {"a": "1"}, False),
        ("a notin (1,2)", {}, True),
        ("x.y/z-0=v_1.2", {"x.y/z-0": "v_1.2"}, True),
        ("a=1,b in (x,y),!c", {"a": "1", "b": "y"}, True),
        ("a=1,b in (x,y),!c", {"a": "1", "b": "y", "c": ""}, False),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "4"}, False),
        ("n>3", {"n": "many"}, False),
        (" a = 1 , b ", {"a": "1", "b": "2"}, True),
    ],
)
def test_labels(text: str, labels: dict[str, str], want: bool) -> None:
    assert label_selector(text)({"metadata": {"labels": labels}}) == want


@pytest.mark.parametrize("text", ["a in", "a in (b", "=1", "a=b=c", "a b", "n>x", "in (a)"])
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        label_selector(text)

    assert refused.value.code == 400


def test_an_object_without_labels_has_none() -> None:
    assert label_selector("!a")({"metadata": {}})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("metadata.name=p", True),
        ("metadata.namespace!=n", False),
        ("spec.nodeName=", True),
        ("spec.nodeName=n1", False),
        ("spec.hostNetwork=false", True),
        ("status.phase=Running,metadata.name=p", True),
        ("count=3", True),
    ],
)
def test_fields(text: str, want: bool) -> None:
    item: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"hostNetwork": False},
        "status": {"phase": "Running", "times": {"run": 3}},
    }
    supported = ("spec.nodeName", "spec.hostNetwork", "status.phase", "count")

    assert field_selector(text, supported, {"count": "status.times.run"})(item) == want


@pytest.mark.parametrize("text", ["spec.other=1", "spec.nodeName", "=x"])
def test_what_is_no_field_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        field_selector(text, ("spec.nodeName",), {})

    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, False, id="no selector selects nothing"),
        pytest.param({}, True, id="an empty selector selects everything"),
        pytest.param({"matchLabels": {"a": "1"}}, True, id="labels"),
        pytest.param({"matchLabels": {"a": "2"}}, False, id="other labels"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, True, id="In"),
        pytest.param(
            {"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True, id="NotIn"
        ),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True, id="Exists"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False, id="DoesNotExist"
        ),
    ],
)
def test_selector_objects(selector: dict[str, Any] | None, want: bool) -> None:
    assert matches_labels(selector, {"a": "1"}) == want
