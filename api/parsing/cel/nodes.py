"""What each part of a CEL expression evaluates to, as functions of the variables.

`&&` and `||` may be decided by one side although the other is an error, as CEL wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import repeat
from typing import Any

from api.parsing.cel.values import CelError, OptionalValue

# Of one evaluation: nodes visited, items looked at and characters made. An ordinary selector takes some tens.
MOST_STEPS = 1_000
# How many characters of a text are read or copied in the time of a step.
_CHARACTERS = 64


class Scope:
    """The variables of one evaluation, and what is left of its budget."""

    __slots__ = ("steps", "variables")

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = dict(variables)
        self.steps = MOST_STEPS

    def spend(self, steps: int = 1) -> None:
        """Take steps off the budget. Raises CelError when it is used up."""
        self.steps -= steps
        if self.steps < 0:
            raise CelError(f"takes more than {MOST_STEPS} steps; simplify the expression")


Node = Callable[[Scope], Any]


def constant(value: Any) -> Node:
    return lambda _: value


def variable(name: str) -> Node:
    def node(scope: Scope) -> Any:
        scope.spend()
        return scope.variables[name]

    return node


def listing(parts: list[Node]) -> Node:
    def node(scope: Scope) -> list[Any]:
        scope.spend(len(parts))
        return [part(scope) for part in parts]

    return node


def choice(condition: Node, then: Node, otherwise: Node) -> Node:
    def node(scope: Scope) -> Any:
        scope.spend()
        return then(scope) if _truth(condition(scope)) else otherwise(scope)

    return node


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: {_kind(value)} where a bool is expected")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__.lower()


def within(scope: Scope, name: str, value: Any, body: Node) -> Any:
    """Evaluate the body with one more variable."""
    scope.spend()
    before = scope.variables
    scope.variables = {**before, name: value}
    try:
        return body(scope)
    finally:
        scope.variables = before


def selection(node: Node, key: Node, is_optional: bool) -> Node:
    """Return `a.b`, `a["b"]`, `a[0]`, or the optional forms `a.?b` and `a[?"b"]`."""

    def select(scope: Scope) -> Any:
        scope.spend()
        holder, name = node(scope), key(scope)
        in_optional = isinstance(holder, OptionalValue)
        if in_optional:
            if not holder.has:
                return holder
            holder = holder.value
        try:
            value = _item(holder, name)
        except CelError:
            if is_optional or in_optional:
                return OptionalValue(False)
            raise
        return OptionalValue(True, value) if is_optional or in_optional else value

    return select


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        try:
            return holder[key]
        except (KeyError, TypeError):
            raise CelError(f"no such key: {_shown(key)}") from None
    if isinstance(holder, list) and isinstance(key, int):
        if 0 <= key < len(holder):
            return holder[key]
        raise CelError(f"index out of bounds: {key}")
    raise CelError(f"no such overload: {_kind(holder)} has no field {_shown(key)}")


def _shown(key: Any) -> str:
    """Return a key for a message. A list may hold another many times, so its text could be endless."""
    return str(key)[:100] if isinstance(key, str | int | float) else _kind(key)


def has(holder: Node, name: str) -> Node:
    def node(scope: Scope) -> bool:
        scope.spend()
        value = holder(scope)
        if not isinstance(value, dict):
            raise CelError(f"no such overload: {_kind(value)} has no field {name!r}")
        return name in value

    return node


def negation(sign: str, node: Node) -> Node:
    def negated(scope: Scope) -> Any:
        scope.spend()
        value = node(scope)
        return not _truth(value) if sign == "!" else _arithmetic("-", 0, value, scope)

    return negated


def operation(sign: str, left: Node, right: Node) -> Node:
    if sign in ("&&", "||"):
        return _logic(left, right, ends_at=sign == "||")

    def node(scope: Scope) -> Any:
        scope.spend()
        one, other = left(scope), right(scope)
        match sign:
            case "==":
                return _equal(one, other, scope)
            case "!=":
                return not _equal(one, other, scope)
            case "in":
                return _contained(one, other, scope)
            case "<" | "<=" | ">" | ">=":
                return _compared(sign, one, other)
        return _arithmetic(sign, one, other, scope)

    return node


def _logic(left: Node, right: Node, *, ends_at: bool) -> Node:
    """Return `&&` or `||`, which one side alone may decide even if the other is an error."""

    def node(scope: Scope) -> bool:
        scope.spend()
        try:
            if _truth(left(scope)) is ends_at:
                return ends_at
        except CelError:
            if _truth(right(scope)) is ends_at:
                return ends_at
            raise
        return _truth(right(scope))

    return node


_NUMBERS = (int, float)


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _equal(one: Any, other: Any, scope: Scope) -> bool:
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    if isinstance(one, list) and isinstance(other, list):
        # Each item costs, since a list may hold another many times.
        scope.spend(len(one))
        return len(one) == len(other) and all(map(_equal, one, other, repeat(scope)))
    return type(one) is type(other) and bool(one == other)


def _contained(one: Any, many: Any, scope: Scope) -> bool:
    if isinstance(many, dict):
        try:
            return one in many
        except TypeError:
            raise CelError(f"no such overload: {_kind(one)} in dict") from None
    if isinstance(many, list):
        scope.spend(len(many))
        return any(_equal(one, each, scope) for each in many)
    raise CelError(f"no such overload: in {_kind(many)}")


def _compared(sign: str, one: Any, other: Any) -> bool:
    is_alike = (_is_number(one) and _is_number(other)) or (
        type(one) is type(other) and isinstance(one, str | bool)
    )
    if not is_alike:
        raise CelError(f"no such overload: {_kind(one)} {sign} {_kind(other)}")
    order = (one > other) - (one < other)
    return bool({"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign])


def _arithmetic(sign: str, one: Any, other: Any, scope: Scope) -> Any:
    if sign == "+" and type(one) is type(other) and isinstance(one, str | list):
        scope.spend(len(one) + len(other))
        return one + other
    is_alike = _is_number(one) and type(one) is type(other)
    if not is_alike or (sign == "%" and isinstance(one, float)):
        raise CelError(f"no such overload: {_kind(one)} {sign} {_kind(other)}")
    if sign in "/%" and other == 0:
        raise CelError("division by zero")
    match sign:
        case "+":
            result = one + other
        case "-":
            result = one - other
        case "*":
            result = one * other
        case "/":
            # Toward zero, where Python rounds down.
            result = one / other if isinstance(one, float) else int(Fraction(one, other))
        case _:
            result = one - other * int(Fraction(one, other))
    if isinstance(result, int) and not -(2**63) <= result < 2**63:
        raise CelError("integer overflow")
    return result


def call(
    function: Callable[..., Any],
    name: str,
    parts: tuple[Node, ...],
    cost: Callable[..., int] | None = None,
) -> Node:
    """Return a call. `cost` returns the steps that it takes beside reading its texts."""

    def node(scope: Scope) -> Any:
        scope.spend()
        values = [part(scope) for part in parts]
        scope.spend(sum(len(value) for value in values if isinstance(value, str)) // _CHARACTERS)
        try:
            scope.spend(0 if cost is None else cost(*values))
            result = function(*values)
        except (TypeError, AttributeError, LookupError):
            kinds = ", ".join(map(_kind, values))
            raise CelError(f"no such overload: {name}({kinds})") from None
        if isinstance(result, list):
            scope.spend(len(result))
        return result

    return node


MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})


def macro(name: str, node: Node, variable: str, body: Node) -> Node:
    def evaluate(scope: Scope) -> Any:
        many = node(scope)
        if not isinstance(many, dict | list):
            raise CelError(f"no such overload: {name} of {_kind(many)}")
        items = list(many)
        scope.spend(len(items))
        values = [within(scope, variable, item, body) for item in items]
        match name:
            case "map":
                return values
            case "filter":
                return [item for item, value in zip(items, values, strict=True) if _truth(value)]
            case "all":
                return all(map(_truth, values))
            case "exists":
                return any(map(_truth, values))
        return sum(map(_truth, values)) == 1

    return evaluate
