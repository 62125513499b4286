"""Types that the sections of both configuration documents share."""

from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from api.models.common import LabelSelector
from api.objects.common import WireSelector
from api.parsing.durations import DurationError, parse_duration


class Section(BaseModel):
    """Base of every part of a configuration: camelCase, strict types.

    Unknown fields are kept, to warn about them.
    """

    # Frozen, because every task reads it. Strict, because "true" in place of true is
    # a mistake worth reporting.
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="allow",
        strict=True,
        frozen=True,
    )


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise PydanticCustomError("duration", "must be a duration such as 30s, 5m or 1h30m")
    try:
        return parse_duration(value)
    except DurationError as error:
        raise PydanticCustomError("duration", "must be a duration such as 30s, 5m or 1h30m") from error


Duration = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
"""Seconds, written as a duration; not negative."""

Port = Annotated[int, Field(ge=0, le=65535)]
NaturalNumber = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Selector(LabelSelector):
    """A label selector inside a configuration."""

    model_config = ConfigDict(extra="allow", strict=True)

    def to_wire(self) -> WireSelector:
        """Return the selector in the form that `api.selectors` matches with."""
        return msgspec.convert(self.model_dump(by_alias=True), WireSelector)


def unknown_fields(section: BaseModel, path: str = "") -> list[tuple[str, str, list[str]]]:
    """Return (path of the section, unknown field, known fields of the section) for each unknown field."""
    found = [(path, name, _known(section)) for name in section.model_extra or ()]
    for name, value in _set_fields(section):
        for place, inner in _sections(value, f"{path}.{name}" if path else name):
            found += unknown_fields(inner, place)
    return found


def set_paths(section: BaseModel, path: str = "") -> list[str]:
    """Return the paths of the fields that the file sets, down to lists, maps and scalar values."""
    found: list[str] = []
    for name, value in _set_fields(section):
        place = f"{path}.{name}" if path else name
        found += set_paths(value, place) if isinstance(value, BaseModel) else [place]
    return found


def _known(section: BaseModel) -> list[str]:
    return [field.alias or name for name, field in type(section).model_fields.items()]


def _set_fields(section: BaseModel) -> list[tuple[str, Any]]:
    fields = type(section).model_fields
    return [
        (fields[name].alias or name, getattr(section, name))
        for name in fields
        if name in section.model_fields_set and getattr(section, name) is not None
    ]


def _sections(value: object, path: str) -> list[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        return [(path, value)]
    if isinstance(value, list):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        return [(place, item) for place, item in items if isinstance(item, BaseModel)]
    return []
