"""CEL. Rules: cel-spec's langdef.md and the extensions of Kubernetes' API server."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from api.parsing.cel import nodes
from api.parsing.cel.nodes import Scope
from api.parsing.cel.parser import compile_cel
from api.parsing.cel.values import CelError, to_quantity, to_semver

DEVICE = {
    "driver": "gpu.example.com",
    "attributes": {
        "gpu.example.com": {"model": "A100", "mig": False, "cores": 7, "version": to_semver("1.10.0-rc.2")}
    },
    "capacity": {"gpu.example.com": {"memory": to_quantity("80Gi")}},
}


def evaluate(text: str) -> Any:
    return compile_cel(text, ("device",)).evaluate({"device": DEVICE})


OWN = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param('device.driver == "gpu.example.com"', True, id="a field is compared with a text"),
        pytest.param(f"{OWN}.model == 'A100' && !{OWN}.mig", True, id="both sides of a conjunction hold"),
        pytest.param(f"{OWN}['model'] in ['H100', 'A100']", True, id="a value is looked up in a list"),
        pytest.param(f"'model' in {OWN}", True, id="a key is looked up in a map"),
        pytest.param(f"has({OWN}.model) && !has({OWN}.other)", True, id="has() asks for a field"),
        pytest.param(f"{OWN}.?other.orValue('none')", "none", id="an optional field has another value"),
        pytest.param(f"{OWN}[?'model'].hasValue()", True, id="an optional field may be there"),
        pytest.param("true || device.nothing", True, id="one side that decides hides an error of the other"),
        pytest.param("device.nothing || true", True, id="so it does on the right"),
        pytest.param("1 + 2 * 3 - 8 / 3 % 2", 7, id="signs bind as in arithmetic"),
        pytest.param("-7 / 2 == -3 && -7 % 2 == -1", True, id="whole numbers are divided toward zero"),
        pytest.param("1 == 1.0 && true != false && '1' != 1", True, id="numbers of both kinds are compared"),
        pytest.param("[1, 2, 3].exists(n, n > 2) && [1, 2].all(n, n > 0)", True, id="macros go over lists"),
        pytest.param("[1, 2, 3].filter(n, n > 1).map(n, n * 2)", [4, 6], id="lists are filtered and mapped"),
        pytest.param(f"cel.bind(m, {OWN}.model, m == 'A100' || m == 'H100')", True, id="a value gets a name"),
        pytest.param(f"{OWN}.mig ? 'part' : 'whole'", "whole", id="a condition chooses"),
        pytest.param(f"{OWN}.model.lowerAscii().startsWith('a1')", True, id="methods of texts"),
        pytest.param(f"{OWN}.model.matches('^A[0-9]+$')", True, id="a text matches a regular expression"),
        pytest.param("matches('A100', '^H')", False, id="matches() as a function"),
        pytest.param(
            'device.capacity["gpu.example.com"].memory.compareTo(quantity("81920Mi")) == 0',
            True,
            id="quantities are equal by value",
        ),
        pytest.param(
            'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80G"))',
            True,
            id="quantities have an order",
        ),
        pytest.param(f"{OWN}.version.isLessThan(semver('1.10.0'))", True, id="a pre-release comes first"),
        pytest.param(f"{OWN}.version.compareTo(semver('1.9.9'))", 1, id="versions are compared by number"),
        pytest.param("012 == 12 && 0x1F == 31", True, id="a number with a leading zero is decimal"),
        pytest.param("int('7') + int(7.9) == 14 && double('1.5') == 1.5", True, id="numbers are converted"),
        pytest.param("has((device.driver)) && !!true && - -1 == 1", True, id="signs and brackets repeat"),
        pytest.param(
            "'a1b22'.find('[0-9]+') + 'ab'.find('[0-9]')", "1", id="the first match is found, or none"
        ),
        pytest.param("'a1b22'.findAll('[0-9]+')", ["1", "22"], id="all matches are found"),
        pytest.param("'1 2 3'.findAll('[0-9]', 2) + '1'.findAll('1', -1)", ["1", "2", "1"], id="or so many"),
        pytest.param(r"'a\tb' == 'a\x09b' && r'\d' == '\\d'", True, id="texts have escapes"),
    ],
)
def test_an_expression_has_a_value(text: str, want: object) -> None:
    assert evaluate(text) == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("device.driver ==", "syntax error at 'the end'", id="an expression that ends early"),
        pytest.param("device.driver = 'x'", "syntax error", id="an unknown sign"),
        pytest.param("dev.driver == 'x'", "undeclared reference to 'dev'", id="an unknown variable"),
        pytest.param("device.driver.sing()", "undeclared reference to method 'sing'", id="an unknown method"),
        pytest.param("(" * 100 + "1" + ")" * 100, "nested more than", id="an expression nested too deep"),
        pytest.param("device.nothing", "no such key: nothing", id="a field that is not there"),
        pytest.param("1 + 'x'", "no such overload: int . str", id="values that do not go together"),
        pytest.param("1 && true", "int where a bool is expected", id="a condition that is no bool"),
        pytest.param("1 / 0", "division by zero", id="a division by zero"),
        pytest.param("9223372036854775807 + 1", "integer overflow", id="a number of more than 64 bits"),
        pytest.param("quantity('3 cats')", "3 cats", id="a text that is no quantity"),
        pytest.param("int(device.driver) > 0", "cannot convert value to int", id="a text that is no number"),
        pytest.param(
            "double(device.driver) > 0.0", "cannot convert value to float", id="nor one with a point"
        ),
        pytest.param("int(1e308*10.0) > 0", "cannot convert value to int", id="a number that has no end"),
        pytest.param("int('9223372036854775808') > 0", "integer overflow", id="a text of more than 64 bits"),
        pytest.param("1.5 % 2.0 == 0.0", "no such overload: float % float", id="a rest of fractions"),
        pytest.param(
            f"[1] in {OWN}", "no such overload: list in dict", id="a list that is looked up in a map"
        ),
        pytest.param(f"{OWN}[[1]] == 1", "no such key: list", id="a list as a key"),
        pytest.param("9" * 5000 + " > 0", "invalid int literal", id="a number of too many digits"),
        pytest.param(
            f"semver('1.2.{'9' * 5000}').major() > 0", "is too long", id="a version that is too long"
        ),
        pytest.param("string([1]) == ''", r"no such overload: string\(list\)", id="the text of a list"),
        pytest.param("!" * 4000 + "true", "nested more than", id="negations without end"),
        pytest.param("-" * 4000 + "1 == 1", "nested more than", id="signs without end"),
        pytest.param("has(device.driver == 'x')", "invalid argument to has", id="has() of what is no field"),
        pytest.param("has(device.?driver)", "invalid argument to has", id="has() of an optional field"),
        pytest.param("'a'.matches('(')", "no regular expression", id="an expression that is none"),
        pytest.param("'a'.matches(1)", "no such overload: matches", id="a number as regular expression"),
        pytest.param("'a'.find(1)", r"no such overload: find\(str, int\)", id="a number as a pattern"),
        pytest.param("1.find('a')", "no such overload", id="a number that is searched"),
        pytest.param(
            "'a'.findAll('a', 'a')", r"no such overload: findAll", id="a text as a number of matches"
        ),
        pytest.param("'a'.findAll('a', 1, 1)", r"no such overload: findAll", id="too many arguments"),
        pytest.param("'a'.matches()", r"no such overload: matches\(str\)", id="no pattern"),
        pytest.param(f"'{'a' * 500}'.findAll('a.*b|a')", "more than 1000 steps", id="matches that are slow"),
        pytest.param(r"'\ud800' == ''", "is half a character", id="half a character"),
        pytest.param(
            "[1,2,3,4,5,6,7,8].exists(a, [1,2,3,4,5,6,7,8].exists(b, [1,2,3,4,5,6,7].exists(c, c > 9)))",
            "more than 1000 steps",
            id="an expression that takes too long",
        ),
        pytest.param(
            "cel.bind(a, 'xxxxxxxxxxxxxxxx', cel.bind(b, a+a+a+a, cel.bind(c, b+b+b+b, c+c+c+c == '')))",
            "more than 1000 steps",
            id="a text that grows",
        ),
        pytest.param(
            f"[{'0,' * 100}0].all(x, [{'1,' * 4000}1].size() > 0)",
            "more than 1000 steps",
            id="a list made often",
        ),
        pytest.param(
            "".join(f"cel.bind(a{n}, [a{n - 1}, a{n - 1}], " for n in range(1, 20)).replace("a0", "1")
            + "".join(f"cel.bind(b{n}, [b{n - 1}, b{n - 1}], " for n in range(1, 20)).replace("b0", "1")
            + "a19 == b19"
            + ")" * 38,
            "more than 1000 steps",
            id="lists that hold others many times",
        ),
        pytest.param(f"'{'a' * 2000}'.split('') == []", "more than 1000 steps", id="a text in many parts"),
        pytest.param("true" + " && true" * 2000, "is longer than 10240", id="an expression that is too long"),
    ],
)
def test_an_expression_that_cannot_be_evaluated_says_why(text: str, why: str) -> None:
    with pytest.raises(CelError, match=why):
        evaluate(text)


@pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), OverflowError(), MemoryError()])
def test_what_is_overlooked_in_an_expression_is_an_error_of_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Scope, "spend", fail)
    with pytest.raises(CelError, match="cannot be evaluated"):
        evaluate("device.driver == 'x'")

    monkeypatch.setattr(nodes, "variable", fail)
    with pytest.raises(CelError, match="cannot be parsed"):
        compile_cel(f"device.driver == '{error!r}'", ("device",))


def test_a_long_chain_has_a_value_or_an_error() -> None:
    with pytest.raises(CelError):
        evaluate("1" + "+1" * 5000 + " > 0")


def test_has_within_has_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "true"
    for _ in range(20):
        text = f"has(device.attributes[{text} ? 'a' : 'b'].c)"
    made: list[str] = []
    real = nodes.has

    def counted(holder: nodes.Node, name: str) -> nodes.Node:
        made.append(name)
        assert len(made) <= 20
        return real(holder, name)

    monkeypatch.setattr(nodes, "has", counted)
    with pytest.raises(CelError, match="no such key"):
        evaluate(text)


def test_what_is_kept_of_the_longest_expressions_is_bounded_in_memory() -> None:
    """A tenant writes as many of them as it likes."""
    longest = "1" + "+1" * ((10 << 10) // 2 - 100)
    tracemalloc.start()
    for number in range(40):
        compile_cel(longest + " " * number, ("device",))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 70 << 20


def test_no_text_that_is_too_long_is_kept() -> None:
    tracemalloc.start()
    for number in range(20):
        with pytest.raises(CelError, match="is longer than 10240 characters"):
            compile_cel("x" * (1 << 20) + str(number), ())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 5 << 20
