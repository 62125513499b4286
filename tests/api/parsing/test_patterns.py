"""`matches()` of CEL: RE2's syntax, found anywhere in the text, in a bounded number of steps."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.parsing.cel.parser import compile_cel
from api.parsing.cel.patterns import cost_of_search, matches
from api.parsing.cel.values import CelError


@pytest.mark.parametrize(
    ("expression", "found", "not_found"),
    [
        pytest.param("100", ["A100-SXM"], ["A10"], id="a part of the text"),
        pytest.param("^A(100|30)$", ["A100", "A30"], ["A100X", "xA30", ""], id="the whole of it"),
        pytest.param("H[12]00.*(NVL|SXM)", ["H100 80GB SXM5", "H200 NVL"], ["H300 SXM"], id="alternatives"),
        pytest.param("^a*b+c?$", ["b", "aabbc"], ["ac", "bcc"], id="repetitions"),
        pytest.param("^(ab){2,3}$", ["abab", "ababab"], ["ab", "abababab"], id="repetitions by numbers"),
        pytest.param("^a{2}$|^b{2,}$", ["aa", "bbb"], ["aaa", "b"], id="a number, and a least one"),
        pytest.param("^a{,2}$", ["a{,2}"], ["aa"], id="a brace that is itself"),
        pytest.param("^a+?b*?$", ["aab", "a"], ["b"], id="lazy repetitions"),
        pytest.param(r"^[^-\]a-c]$", ["d", "["], ["a", "-", "]", ""], id="a class without some"),
        pytest.param("^[]a-]+$", ["]-a"], ["b"], id="signs that are themselves in a class"),
        pytest.param(r"^\d\D\s\S\w\W$", ["1x y_-"], ["xx y_-"], id="classes by letter"),
        pytest.param(r"^[\d_]+$", ["1_2"], ["a"], id="a class in a class"),
        pytest.param("^[[:upper:][:digit:]]+$", ["A1"], ["a1"], id="classes by name"),
        pytest.param("^[[:^digit:]]$", ["a"], ["1"], id="a class by name that is left out"),
        pytest.param(r"\bgpu\b", ["a gpu-0"], ["gpus"], id="edges of words"),
        pytest.param(r"g\Bpu", ["gpu"], ["g pu"], id="no edge of a word"),
        pytest.param(r"\Aab\z", ["ab"], ["ab\n", "xab"], id="start and end of the text"),
        pytest.param("(?i)^a[b-c]$", ["AB", "aC"], ["AD"], id="letters of either case"),
        pytest.param("(?i)[^a]", ["b"], ["a", "A"], id="a class without some, of either case"),
        pytest.param("^(?i:a)b$", ["Ab"], ["AB"], id="flags of a group"),
        pytest.param("^(?i)a(?-i)b$", ["Ab"], ["AB"], id="flags that end"),
        pytest.param("^a.b$", ["a b"], ["a\nb"], id="any character of a line"),
        pytest.param("(?s)^a.b$", ["a\nb"], ["ab"], id="any character"),
        pytest.param("(?m)^b$", ["a\nb\nc"], ["ab"], id="start and end of a line"),
        pytest.param("^(?P<n>a)(?<m>b)(?:c)$", ["abc"], ["ab"], id="groups"),
        pytest.param(r"^\x41\x{1F600}\t\.$", ["A\U0001f600\t."], ["A"], id="characters by number and sign"),
        pytest.param("", ["", "a"], [], id="nothing is in every text"),
        pytest.param("^(a*)*$", ["", "aaa"], ["b"], id="a repetition of what may be nothing"),
        pytest.param("a||b", ["c"], [], id="an empty alternative"),
    ],
)
def test_an_expression_finds(expression: str, found: list[str], not_found: list[str]) -> None:
    assert [one for one in (*found, *not_found) if matches(one, expression)] == found


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("(a", r"missing \)", id="a group without end"),
        pytest.param("a)", r"unexpected \)", id="an end without a group"),
        pytest.param("[a", r"missing \]", id="a class without end"),
        pytest.param("*a", r"no argument for repetition operator: \*", id="a repetition of nothing"),
        pytest.param("a{1001}", "invalid repetition size", id="too many repetitions"),
        pytest.param("[b-a]", "invalid character class range", id="a range that ends before it begins"),
        pytest.param(r"(a)\1", r"invalid escape sequence: \\1", id="a reference to a group"),
        pytest.param("(?=a)", r"invalid perl operator: \(\?=", id="a look ahead"),
        pytest.param("[[:letter:]]", "invalid character class range", id="an unknown class"),
        pytest.param("\\", "trailing", id="an escape of nothing"),
        pytest.param("((a{100}){100}){100}", "invalid repetition size", id="repetitions of repetitions"),
        pytest.param("a|" * 5000, "too large", id="many alternatives"),
    ],
)
def test_what_cannot_be_evaluated_is_named(expression: str, want: str) -> None:
    with pytest.raises(CelError, match=f"no regular expression that can be evaluated.*{want}"):
        matches("a", expression)


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)*b", "(.*a){20}", "[" + "ab" * 400 + "]{400}"])
def test_an_expression_that_python_takes_for_ever_has_a_bounded_cost(expression: str) -> None:
    text = "a" * 64
    places = cost_of_search(text, expression)

    said = f"'{text}'.matches('{expression}')"
    if places > 1_000:
        with pytest.raises(CelError, match="takes more than 1000 steps"):
            compile_cel(said, ()).evaluate({})
    else:
        assert compile_cel(said, ()).evaluate({}) is matches(text, expression)


LETTERS = st.sampled_from([*"ab", "[ab]", "[^a]", ".", r"\w"])
EXPRESSIONS = st.recursive(
    LETTERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"^{one}"),
        inner.map(lambda one: f"{one}$"),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.text(string.ascii_lowercase[:3], max_size=6))
def test_it_finds_what_pythons_own_expressions_find(expression: str, text: str) -> None:
    assert matches(text, expression) is (re.search(expression, text) is not None)
