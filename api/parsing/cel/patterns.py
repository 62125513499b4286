"""Regular expressions as `matches()` of CEL has them: RE2's syntax, in time linear in the text.

Theory of operation. A tenant writes the expression, so no search may take longer than its budget, which
rules out Python's `re`: it tries one way after the other. An expression becomes a program, and the search
keeps the set of all places in the program that the text so far may lead to (Thompson, Pike). Nothing is
captured, so lazy and greedy repetitions are the same.

    a(b|c)*    0 char a  1 split 2 7  2 split 3 5  3 char b  4 jump 6  5 char c  6 split 2 7  7 end

Source: RE2, doc/syntax.txt. Left out: \\p, \\C, \\Q and what RE2 has not either, as references to groups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from api.parsing.cel.values import CelError

# The most instructions of a program, and how deeply its groups may be nested.
_MOST_INSTRUCTIONS = 500
_MOST_NESTING = 50
# RE2 allows no larger count.
_MOST_REPEATS = 1_000
# Places in the program that one step of an evaluation pays for.
_PLACES_OF_A_STEP = 4

Test = Callable[[str], bool]


class _Instruction(NamedTuple):
    """One of: test a character, hold at a place of the text, go on at one or two places relative to this."""

    test: Test | None = None
    holds: Callable[[str, int], bool] | None = None
    to: tuple[int, ...] = (1,)


_Program = list[_Instruction]


class _Compiled(NamedTuple):
    """A program, and how many tests each character takes at most."""

    program: _Program
    tests: int


def matches(text: str, expression: str) -> bool:
    """Return whether a part of the text matches the expression. Raises CelError if it is none."""
    program = _compiled(expression).program
    places: set[int] = set()
    for at in range(len(text) + 1):
        # A match may begin at every character.
        reached = _closure(program, {*places, 0}, text, at)
        if len(program) in reached:
            return True
        if at < len(text):
            places = {
                one + 1 for one in reached if (test := program[one].test) is not None and test(text[at])
            }
    return False


def cost_of_matches(text: str, expression: str) -> int:
    """Return how many steps `matches` takes at most. Raises CelError and TypeError."""
    if not isinstance(text, str) or not isinstance(expression, str):
        raise TypeError
    return _compiled(expression).tests * (len(text) + 1) // _PLACES_OF_A_STEP


def _closure(program: _Program, places: set[int], text: str, at: int) -> set[int]:
    """Return where these places lead without another character, themselves included."""
    found: set[int] = set()
    left = [*places]
    while left:
        place = left.pop()
        if place in found:
            continue
        found.add(place)
        if place == len(program):
            continue
        one = program[place]
        if one.test is None and (one.holds is None or one.holds(text, at)):
            left += (place + step for step in one.to)
    return found


@lru_cache(maxsize=256)
def _compiled(expression: str) -> _Compiled:
    return _Parser(expression).parse()


# --- classes of characters ------------------------------------------------------------------------


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


_ESCAPED: dict[str, Test] = {
    "d": lambda char: "0" <= char <= "9",
    "s": lambda char: char in "\t\n\f\r ",
    "w": _is_word,
}
_POSIX: dict[str, Test] = {
    "alnum": lambda char: char.isascii() and char.isalnum(),
    "alpha": lambda char: char.isascii() and char.isalpha(),
    "ascii": str.isascii,
    "blank": lambda char: char in "\t ",
    "cntrl": lambda char: char < " " or char == "\x7f",
    "digit": _ESCAPED["d"],
    "graph": lambda char: "!" <= char <= "~",
    "lower": lambda char: "a" <= char <= "z",
    "print": lambda char: " " <= char <= "~",
    "punct": lambda char: "!" <= char <= "~" and not char.isalnum(),
    "space": lambda char: char in "\t\n\v\f\r ",
    "upper": lambda char: "A" <= char <= "Z",
    "word": _is_word,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _not(test: Test) -> Test:
    return lambda char: not test(char)


def _any_of(tests: list[Test]) -> Test:
    return lambda char: any(test(char) for test in tests)


def _between(first: str, last: str) -> Test:
    return lambda char: first <= char <= last


def _folded(test: Test) -> Test:
    return lambda char: test(char) or test(char.lower()) or test(char.upper())


def _is_any(_: str) -> bool:
    return True


_is_in_line = _not(_between("\n", "\n"))


# --- places in the text ---------------------------------------------------------------------------


def _is_start(_: str, at: int) -> bool:
    return at == 0


def _is_end(text: str, at: int) -> bool:
    return at == len(text)


def _is_start_of_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _is_end_of_line(text: str, at: int) -> bool:
    return at == len(text) or text[at] == "\n"


def _is_edge_of_word(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    return before != (at < len(text) and _is_word(text[at]))


def _is_no_edge_of_word(text: str, at: int) -> bool:
    return not _is_edge_of_word(text, at)


_PLACES = {"A": _is_start, "z": _is_end, "b": _is_edge_of_word, "B": _is_no_edge_of_word}


# --- the syntax -----------------------------------------------------------------------------------


class _Parser:
    """Reads one expression from left to right into a program."""

    def __init__(self, expression: str) -> None:
        self._text, self._at, self._depth, self._members = expression, 0, 0, 0
        self._flags: frozenset[str] = frozenset()

    def parse(self) -> _Compiled:
        """Return the program."""
        program = self._alternatives()
        if self._at < len(self._text):
            raise self._fault("unexpected )")
        # Each class may be in the program as often as it has instructions.
        return _Compiled(program, (len(program) + 1) * (1 + self._members))

    def _fault(self, what: str) -> CelError:
        return CelError(f"{self._text[:100]!r} is no regular expression that can be evaluated: {what}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _next(self) -> str:
        if not (char := self._peek()):
            raise self._fault("it ends too early")
        self._at += 1
        return char

    def _until(self, sign: str) -> str:
        end = self._text.find(sign, self._at)
        if end < 0:
            raise self._fault(f"missing {sign}")
        found, self._at = self._text[self._at : end], end + len(sign)
        return found

    def _sized(self, program: _Program) -> _Program:
        if len(program) > _MOST_INSTRUCTIONS:
            raise self._fault("it is too large")
        return program

    def _alternatives(self) -> _Program:
        sequences = [self._sequence()]
        while self._take("|"):
            sequences.append(self._sequence())
        program = sequences.pop()
        while sequences:
            first, jump = sequences.pop(), _Instruction(to=(len(program) + 1,))
            program = self._sized([_Instruction(to=(1, len(first) + 2)), *first, jump, *program])
        return program

    def _sequence(self) -> _Program:
        program: _Program = []
        while self._peek() not in ("", "|", ")"):
            program = self._sized([*program, *self._repeated(self._atom())])
        return program

    def _repeated(self, atom: _Program) -> _Program:
        while True:
            if self._take("*"):
                atom = _optional(_again(atom))
            elif self._take("+"):
                atom = _again(atom)
            elif self._take("?"):
                atom = _optional(atom)
            elif (counts := self._counts()) is not None:
                atom = self._counted(atom, *counts)
            else:
                return atom
            # Lazy or greedy, the same texts match.
            self._take("?")

    def _counts(self) -> tuple[int, int | None] | None:
        """Return the numbers of `{2}`, `{2,}` or `{2,5}`; None where a brace is itself."""
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not least.isdecimal() or not (most.isdecimal() or not most):
            return None
        self._at = end + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise self._fault("invalid repeat count")
        return low, high

    def _counted(self, atom: _Program, low: int, high: int | None) -> _Program:
        if len(atom) * max(low, high or 0) > _MOST_INSTRUCTIONS:
            raise self._fault("it is too large")
        if high is None:
            return self._sized([*atom * low, *_optional(_again(atom))])
        rest: _Program = []
        for _ in range(high - low):
            rest = _optional([*atom, *rest])
        return self._sized([*atom * low, *rest])

    def _atom(self) -> _Program:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return [_Instruction(test=self._class())]
            case ".":
                return [_Instruction(test=_is_any if "s" in self._flags else _is_in_line)]
            case "^":
                return [_Instruction(holds=_is_start_of_line if "m" in self._flags else _is_start)]
            case "$":
                return [_Instruction(holds=_is_end_of_line if "m" in self._flags else _is_end)]
            case "*" | "+" | "?":
                raise self._fault(f"nothing to repeat before {char}")
            case "\\":
                if (holds := _PLACES.get(self._peek())) is not None:
                    self._at += 1
                    return [_Instruction(holds=holds)]
                char_or_class = self._escape(self._next())
                if not isinstance(char_or_class, str):
                    return [_Instruction(test=char_or_class)]
                char = char_or_class
        return [_Instruction(test=self._cased(_between(char, char)))]

    def _cased(self, test: Test) -> Test:
        return _folded(test) if "i" in self._flags else test

    def _group(self) -> _Program:
        flags = self._flags
        if self._take("?P<") or self._take("?<"):
            if not (name := self._until(">")).isidentifier():
                raise self._fault(f"invalid group name {name[:100]!r}")
        elif self._take("?") and self._set_flags():
            # They hold to the end of the group that they are in.
            return []
        self._depth += 1
        if self._depth > _MOST_NESTING:
            raise self._fault("it is nested too deeply")
        program = self._alternatives()
        if not self._take(")"):
            raise self._fault("missing )")
        self._depth -= 1
        self._flags = flags
        return program

    def _set_flags(self) -> bool:
        """Take the flags of `(?i)` or `(?i:`; return whether they are all of the group."""
        is_set = True
        while (char := self._next()) not in ":)":
            if char == "-" and is_set:
                is_set = False
            elif char in "imsU":
                self._flags = self._flags | {char} if is_set else self._flags - {char}
            else:
                raise self._fault(f"(?{char} is not supported")
        return char == ")"

    def _class(self) -> Test:
        is_negated = self._take("^")
        tests: list[Test] = []
        while not tests or self._peek() != "]":
            tests.append(self._member())
        self._at += 1
        self._members += len(tests)
        test = self._cased(_any_of(tests))
        return _not(test) if is_negated else test

    def _member(self) -> Test:
        if self._take("[:"):
            is_negated, name = self._take("^"), self._until(":]")
            if name not in _POSIX:
                raise self._fault(f"[:{name[:100]}:] is not supported")
            return _not(_POSIX[name]) if is_negated else _POSIX[name]
        first = self._character()
        if not isinstance(first, str):
            return first
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return _between(first, first)
        self._at += 1
        last = self._character()
        if not isinstance(last, str) or last < first:
            raise self._fault("invalid range of characters")
        return _between(first, last)

    def _character(self) -> str | Test:
        """Return a character of a class, or the class that an escape stands for."""
        char = self._next()
        return self._escape(self._next()) if char == "\\" else char

    def _escape(self, char: str) -> str | Test:
        if char in _ESCAPED:
            return _ESCAPED[char]
        if char.lower() in _ESCAPED:
            return _not(_ESCAPED[char.lower()])
        if char == "x":
            return self._by_number()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isascii() and char.isalnum():
            raise self._fault(f"\\{char} is not supported")
        return char

    def _by_number(self) -> str:
        digits = self._until("}") if self._take("{") else self._next() + self._next()
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._fault(f"\\x{digits[:100]} is no character") from None


def _optional(program: _Program) -> _Program:
    return [_Instruction(to=(1, len(program) + 1)), *program]


def _again(program: _Program) -> _Program:
    return [*program, _Instruction(to=(-len(program), 1))]
