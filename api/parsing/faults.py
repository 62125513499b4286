"""Faults of an object, one per field: the path, the value and the rule that the value violates.

Conditions, events and startup messages share one form: `spec.stopPolicy is "Stop": must be 'None', 'Hold' or
'HoldAndDrain'`. pydantic's errors are translated to this form, so that its own messages are never shown.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# Maximum length of a value in a message; a whole pod template would make the message unreadable.
_SHOWN_CHARACTERS = 80

ABSENT: Final = object()
"""Stands for the value of a field that is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One fault: the path of the field, its value, and the rule that the value violates."""

    path: str
    value: object
    rule: str

    def __str__(self) -> str:
        shown = "is not set" if self.value is ABSENT else f"is {_shown(self.value)}"
        return f"{self.path or 'the object'} {shown}: {self.rule}"


def validation_errors(error: ValidationError) -> tuple[FieldError, ...]:
    """Return pydantic's errors as FieldErrors, in the order of the fields."""
    return tuple(_field_error(details) for details in error.errors(include_url=False))


def join_path(parts: Iterable[str | int]) -> str:
    """Return the path of a field, such as "spec.podSets[0].name".

    Names with a dot or slash are in brackets.
    """
    path = ""
    for part in parts:
        if isinstance(part, int) or not part.replace("_", "").isalnum():
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _field_error(details: ErrorDetails) -> FieldError:
    is_missing = details["type"] == "missing"
    return FieldError(
        path=join_path(details["loc"]),
        value=ABSENT if is_missing else details["input"],
        rule=_rule(details),
    )


def _rule(details: ErrorDetails) -> str:
    say = _RULES.get(details["type"])
    return say(details.get("ctx", {})) if say else details["msg"]


def _always(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


_RULES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": _always("it is required"),
    "string_type": _always("must be text"),
    "int_type": _always("must be a whole number"),
    "int_from_float": _always("must be a whole number"),
    "int_parsing": _always("must be a whole number"),
    "float_type": _always("must be a number"),
    "finite_number": _always("must be a number"),
    "bool_type": _always("must be true or false"),
    "bool_parsing": _always("must be true or false"),
    "list_type": _always("must be a list"),
    "dict_type": _always("must be an object with named fields"),
    "model_type": _always("must be an object with named fields"),
    "model_attributes_type": _always("must be an object with named fields"),
    "literal_error": lambda context: f"must be {context['expected']}",
    "greater_than": lambda context: f"must be more than {_number(context['gt'])}",
    "greater_than_equal": lambda context: f"must be at least {_number(context['ge'])}",
    "less_than": lambda context: f"must be less than {_number(context['lt'])}",
    "less_than_equal": lambda context: f"must be at most {_number(context['le'])}",
    "too_short": lambda context: f"must have at least {context['min_length']} entries",
    "too_long": lambda context: f"must have at most {context['max_length']} entries",
    "string_too_short": lambda context: f"must have at least {context['min_length']} characters",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "string_pattern_mismatch": lambda context: f"must match {context['pattern']}",
}


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
