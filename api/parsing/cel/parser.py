"""CEL, the Common Expression Language, as far as selectors of devices use it.

`compile_cel` turns a text into a program once, and the program answers for many values. The dialect is
Kubernetes': macros, optional fields, and the types Quantity and Semver with their methods. Regular
expressions (`matches`) are refused, since one from a tenant could take Python's engine for ever. Each
evaluation has a budget of steps for the same reason, and so have those for many values together (`Budget`);
the API server limits the costs of an expression too.
Source: cel-spec, doc/langdef.md; Kubernetes, staging/src/k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from api.parsing.cel import nodes
from api.parsing.cel.functions import COSTS, FUNCTIONS, METHODS
from api.parsing.cel.nodes import MOST_STEPS, Node, Scope
from api.parsing.cel.values import CelError

# Kubernetes' limit for selectors of devices. Source: k8s.io/api/resource/v1, CELSelectorExpressionMaxLength.
_MOST_LENGTH = 10 * 1024
# Nearly all selectors are shorter.
_SHORT_LENGTH = 256
# Nested parts of one expression; the parser calls itself for each.
_MOST_DEPTH = 60
# Of numbers without a point: unsigned ones have 64 bits.
_MOST_DIGITS = 20


class Budget:
    """The steps that evaluations may take together."""

    __slots__ = ("_left", "_most")

    def __init__(self, steps: int) -> None:
        self._most = self._left = steps

    def spend(self, steps: int) -> None:
        """Take steps off. Raises CelError when they are used up."""
        self._left -= steps
        if self._left < 0:
            raise CelError(f"takes more than {self._most} steps over all devices; simplify the expression")


@dataclass(frozen=True, slots=True)
class Program:
    """A parsed expression."""

    text: str
    root: Node

    def evaluate(self, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value for these variables. Raises CelError and nothing else."""
        scope = Scope(variables)
        try:
            value = self.root(scope)
            if budget is not None:
                # One more for what each evaluation costs.
                budget.spend(MOST_STEPS - scope.steps + 1)
            return value
        except CelError:
            raise
        # Tenants write expressions: what is overlooked here must not stop the work for others.
        except Exception as error:
            raise CelError(f"cannot be evaluated ({type(error).__name__})") from error


def compile_cel(text: str, variables: tuple[str, ...]) -> Program:
    """Return the program of an expression that may read these variables. Raises CelError and nothing else."""
    if len(text) > _MOST_LENGTH:
        raise CelError(f"is longer than {_MOST_LENGTH} characters")
    compiled = _compiled_short if len(text) <= _SHORT_LENGTH else _compiled_long
    found = compiled(text, variables)
    if isinstance(found, str):
        raise CelError(found)
    return found


def _compiled(text: str, variables: tuple[str, ...]) -> Program | str:
    """Return the program, or what is wrong with the text."""
    try:
        parser = _Parser(text, variables)
        root = parser.expression()
        parser.expect("end")
    except CelError as error:
        return str(error)
    except Exception as error:
        return f"cannot be parsed ({type(error).__name__})"
    return Program(text, root)


# Up to 300 bytes for each character: tenants write the texts, so both together take at most 130 MB.
_compiled_short = lru_cache(maxsize=1024)(_compiled)
_compiled_long = lru_cache(maxsize=16)(_compiled)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"(?P<space>\s+|//[^\n]*)"
    r"|(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<int>0x[0-9a-fA-F]+|\d+)u?"
    r"|(?P<string>[rR]?(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise CelError(f"syntax error at {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(match.group() if kind == "sign" else kind, match.group(), at))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code and 0xD800 <= int(code, 16) <= 0xDFFF:
            raise CelError(f"syntax error: {match[0]} is half a character")
        if code:
            return chr(int(code, 16))
        if match[3] not in _ESCAPES:
            raise CelError(f"syntax error: unknown escape {match[0]!r}")
        return _ESCAPES[match[3]]

    return _ESCAPE.sub(character, text[1:-1])


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise CelError(f"syntax error: invalid int literal {text[:_MOST_DIGITS]}...")
    # Digits after a zero are no octal number, as in Go.
    return int(text, 16 if text.startswith("0x") else 10)


_LEVELS = (("||",), ("&&",), ("<", "<=", ">", ">=", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))


class _Parser:
    """Recursive descent over the tokens; each method returns the node of what it has read."""

    def __init__(self, text: str, variables: tuple[str, ...]) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._known = list(variables)
        # The last `a.b` that was read: its node, and the holder and the name for `has`.
        self._field: tuple[Node, Node, str] | None = None

    def expect(self, kind: str) -> _Token:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise CelError(f"syntax error at {token.text or 'the end'!r}: expected {kind!r}")
        self._at += 1
        return token

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise CelError(f"is nested more than {_MOST_DEPTH} levels deep")
        condition = self._binary(0)
        if self._take("?"):
            then = self.expression()
            self.expect(":")
            condition = nodes.choice(condition, then, self.expression())
        self._depth -= 1
        return condition

    def _take(self, *kinds: str) -> str | None:
        """Return the kind of the next token, read, if it is one of these."""
        token = self._tokens[self._at]
        kind = token.text if token.kind == "name" and token.text == "in" else token.kind
        if kind not in kinds:
            return None
        self._at += 1
        return kind

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while (sign := self._take(*_LEVELS[level])) is not None:
            node = nodes.operation(sign, node, self._binary(level + 1))
        return node

    def _unary(self) -> Node:
        signs = []
        while (sign := self._take("!", "-")) is not None:
            signs.append(sign)
        if len(signs) > _MOST_DEPTH:
            raise CelError(f"is nested more than {_MOST_DEPTH} levels deep")
        node = self._member()
        for sign in reversed(signs):
            node = nodes.negation(sign, node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("."):
                is_optional = self._take("?") is not None
                name = self.expect("name").text
                if self._take("("):
                    node = self._method(node, name)
                else:
                    holder, node = node, nodes.selection(node, nodes.constant(name), is_optional)
                    self._field = None if is_optional else (node, holder, name)
            elif self._take("["):
                is_optional = self._take("?") is not None
                node = nodes.selection(node, self.expression(), is_optional)
                self.expect("]")
            else:
                return node

    def _method(self, node: Node, name: str) -> Node:
        if name in nodes.MACROS:
            variable = self.expect("name").text
            self.expect(",")
            body = self._with_variable(variable)
            self.expect(")")
            return nodes.macro(name, node, variable, body)
        if name not in METHODS:
            raise CelError(f"undeclared reference to method {name!r}")
        return nodes.call(METHODS[name], name, (node, *self._arguments()), COSTS.get(name))

    def _with_variable(self, variable: str) -> Node:
        self._known.append(variable)
        body = self.expression()
        self._known.pop()
        return body

    def _arguments(self, closing: str = ")") -> list[Node]:
        found: list[Node] = []
        while not self._take(closing):
            if found:
                self.expect(",")
            found.append(self.expression())
        return found

    def _primary(self) -> Node:
        token = self._tokens[self._at]
        self._at += 1
        match token.kind:
            case "int":
                return nodes.constant(_whole(token.text.rstrip("u")))
            case "float":
                return nodes.constant(float(token.text))
            case "string":
                return nodes.constant(_unquoted(token.text))
            case "name":
                return self._named(token.text)
            case "(":
                node = self.expression()
                self.expect(")")
                return node
            case "[":
                return nodes.listing(self._arguments("]"))
        raise CelError(f"syntax error at {token.text or 'the end'!r}")

    def _named(self, name: str) -> Node:
        if name in _WORDS:
            return nodes.constant(_WORDS[name])
        if name == "cel" and self._tokens[self._at].kind == ".":
            return self._binding()
        if self._take("("):
            if name == "has":
                return self._presence()
            if name not in FUNCTIONS:
                raise CelError(f"undeclared reference to {name!r}")
            return nodes.call(FUNCTIONS[name], name, tuple(self._arguments()), COSTS.get(name))
        if name not in self._known:
            raise CelError(f"undeclared reference to {name!r}")
        return nodes.variable(name)

    def _presence(self) -> Node:
        """Return the node of `has(a.b)`."""
        node = self.expression()
        self.expect(")")
        if self._field is None or self._field[0] is not node:
            raise CelError("invalid argument to has() macro")
        _, holder, name = self._field
        return nodes.has(holder, name)

    def _binding(self) -> Node:
        """Return the node of `cel.bind(name, value, body)`."""
        self.expect(".")
        if self.expect("name").text != "bind":
            raise CelError("undeclared reference to 'cel'")
        self.expect("(")
        variable = self.expect("name").text
        self.expect(",")
        value = self.expression()
        self.expect(",")
        body = self._with_variable(variable)
        self.expect(")")
        return lambda scope: nodes.within(scope, variable, value(scope), body)
