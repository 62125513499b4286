"""CEL. Rules: cel-spec's langdef.md and the extensions of Kubernetes' API server."""

from __future__ import annotations

from typing import Any

import pytest

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
        pytest.param("'aa'.matches('(a+)+$')", "matches.* not evaluated", id="a regular expression"),
        pytest.param(
            "[1,2,3,4,5,6,7,8].exists(a, [1,2,3,4,5,6,7,8].exists(b, [1,2,3,4,5,6,7].exists(c, c > 9)))",
            "more than 500 steps",
            id="an expression that takes too long",
        ),
        pytest.param(
            "cel.bind(a, 'xxxxxxxxxxxxxxxx', cel.bind(b, a+a+a+a, cel.bind(c, b+b+b+b, c+c+c+c == '')))",
            "more than 500 steps",
            id="a text that grows",
        ),
    ],
)
def test_an_expression_that_cannot_be_evaluated_says_why(text: str, why: str) -> None:
    with pytest.raises(CelError, match=why):
        evaluate(text)
