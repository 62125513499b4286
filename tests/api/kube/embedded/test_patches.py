"""The three patch formats that describe changes, as tables."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from api.kube.embedded.apply.builtin_types import builtin_schema
from api.kube.embedded.apply.errors import ApiError
from api.kube.embedded.apply.patches import json_patch, merge_patch, strategic_merge

POD = builtin_schema("Pod")


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a value is replaced"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="a value is added"),
        pytest.param({"a": "b", "c": 1}, {"a": None}, {"c": 1}, id="null removes"),
        pytest.param({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}, id="lists are replaced"),
        pytest.param(
            {"a": {"b": 1}}, {"a": {"c": None}}, {"a": {"b": 1}}, id="removing what is not there is nothing"
        ),
        pytest.param(
            {"a": "b"}, {"a": {"c": {"d": None}}}, {"a": {"c": {}}}, id="nulls in new objects vanish"
        ),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}, id="a list replaces an object"),
        pytest.param({"a": 1}, ["b"], ["b"], id="a patch that is no object replaces all"),
    ],
)
def test_merge_patch(target: Any, patch: Any, want: Any) -> None:
    """RFC 7386, appendix A."""
    before = deepcopy(target)

    assert merge_patch(target, patch) == want
    assert target == before


@pytest.mark.parametrize(
    ("document", "operations", "want"),
    [
        pytest.param(
            {"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add a member"
        ),
        pytest.param(
            {"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="add into a list"
        ),
        pytest.param(
            {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="add at the end"
        ),
        pytest.param(
            {"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}, id="add replaces the whole"
        ),
        pytest.param({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove an item"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}, id="replace"),
        pytest.param(
            {"a": 1, "b": {}}, [{"op": "move", "from": "/a", "path": "/b/c"}], {"b": {"c": 1}}, id="move"
        ),
        pytest.param(
            {"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}, id="copy"
        ),
        pytest.param(
            {"a/b": {"m~n": 1}},
            [{"op": "replace", "path": "/a~1b/m~0n", "value": 2}],
            {"a/b": {"m~n": 2}},
            id="escaped signs",
        ),
        pytest.param(
            {"a": 1},
            [{"op": "test", "path": "/gone", "value": None}],
            {"a": 1},
            id="what is missing equals null",
        ),
    ],
)
def test_json_patch(document: Any, operations: Any, want: Any) -> None:
    """RFC 6902, appendix A."""
    before = deepcopy(document)

    assert json_patch(document, operations) == want
    assert document == before


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        pytest.param([{"op": "test", "path": "/a", "value": 2}], 422, id="a test that fails"),
        pytest.param([{"op": "remove", "path": "/b"}], 422, id="removing what is not there"),
        pytest.param([{"op": "replace", "path": "/b", "value": 1}], 422, id="replacing what is not there"),
        pytest.param([{"op": "add", "path": "/b/c", "value": 1}], 422, id="adding below what is not there"),
        pytest.param([{"op": "add", "path": "/l/3", "value": 1}], 422, id="adding beyond the end"),
        pytest.param([{"op": "add", "path": "a", "value": 1}], 422, id="a path without a slash"),
        pytest.param([{"op": "melt", "path": "/a"}], 400, id="an unknown operation"),
        pytest.param({"op": "add"}, 400, id="no list"),
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operations: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1, "l": [0]}, operations)

    assert refused.value.code == code


def containers(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in names]


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        pytest.param(
            {"spec": {"containers": containers("a", "b", image="x")}},
            {"spec": {"containers": [{"name": "b", "image": "y"}]}},
            {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}},
            id="an item is found by its key",
        ),
        pytest.param(
            {"spec": {"containers": containers("a")}},
            {"spec": {"containers": containers("b")}},
            {"spec": {"containers": containers("b", "a")}},
            id="a new item comes before those that the patch does not name",
        ),
        pytest.param(
            {"spec": {"containers": containers("a", "b")}},
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            {"spec": {"containers": containers("b")}},
            id="an item is deleted",
        ),
        pytest.param(
            {"spec": {"containers": containers("a", "b")}},
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}},
            {"spec": {"containers": containers("c")}},
            id="a list is replaced",
        ),
        pytest.param(
            {"spec": {"containers": containers("a", "b", "c")}},
            {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}},
            {"spec": {"containers": containers("b", "c", "a")}},
            id="the order is set and others keep their place",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b", "a"]}},
            {"metadata": {"finalizers": ["b", "a"]}},
            id="a set is joined",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
            id="values are taken from a set",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            id="a list without a key is replaced",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"a": "1", "b": "2"}}},
            {"spec": {"nodeSelector": {"$patch": "replace", "c": "3"}}},
            {"spec": {"nodeSelector": {"c": "3"}}},
            id="a map is replaced",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {
                "spec": {
                    "volumes": [
                        {"name": "v", "configMap": {"name": "c"}, "$retainKeys": ["name", "configMap"]}
                    ]
                }
            },
            {"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}},
            id="one kind of volume replaces another",
        ),
    ],
)
def test_strategic_merge(target: Any, patch: Any, want: Any) -> None:
    before = deepcopy(target)

    assert strategic_merge(POD, target, patch) == want
    assert target == before


def test_a_strategic_item_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        strategic_merge(POD, {"spec": {"containers": []}}, {"spec": {"containers": [{"image": "x"}]}})
