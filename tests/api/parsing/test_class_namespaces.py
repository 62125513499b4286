"""The annotation that says which namespaces may use a priority class."""

from __future__ import annotations

import pytest

from api.keys import NAMESPACE_SELECTOR
from api.parsing.class_namespaces import class_namespaces
from api.selectors import matches_selector


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(None, True, id="all, without the annotation"),
        pytest.param("{}", True, id="all, by an empty selector"),
        pytest.param('{"matchLabels":{"team":"red"}}', True, id="those with the label"),
        pytest.param('{"matchLabels":{"team":"blue"}}', False, id="no other"),
        pytest.param(
            '{"matchExpressions":[{"key":"team","operator":"In","values":["red","blue"]}]}',
            True,
            id="those of an expression",
        ),
        pytest.param('{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}', False, id="or not"),
    ],
)
def test_a_class_may_be_used_in_the_namespaces_that_its_selector_selects(
    text: str | None, want: bool
) -> None:
    annotations = {} if text is None else {NAMESPACE_SELECTOR: text}

    assert matches_selector(class_namespaces(annotations), {"team": "red"}) is want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("team=red", "malformed", id="a selector of kubectl"),
        pytest.param("", "truncated", id="nothing"),
        pytest.param("null", "Expected `object`", id="null"),
        pytest.param('{"matchLabel":{"team":"red"}}', "unknown field `matchLabel`", id="a misspelt field"),
        pytest.param(
            '{"matchExpressions":[{"key":"team","operator":"in","values":["red"]}]}',
            "operator 'in' is none of In, NotIn, Exists, DoesNotExist",
            id="a misspelt operator",
        ),
        pytest.param(
            '{"matchExpressions":[{"key":"team","operator":"NotIn","value":["red"]}]}',
            "NotIn takes values",
            id="values under another name, which would select all",
        ),
        pytest.param(
            '{"matchExpressions":[{"key":"team","operator":"Exists","values":["red"]}]}',
            "Exists takes no values",
            id="values that have no effect",
        ),
        pytest.param("[" * 100_000, "", id="nested deep"),
    ],
)
def test_a_selector_that_cannot_be_read_is_reported_and_selects_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="no namespace may use the class") as raised:
        class_namespaces({NAMESPACE_SELECTOR: text})

    assert says in str(raised.value)
