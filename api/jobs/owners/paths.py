"""Values within a JSON object, by path: how they are read, and how they are replaced.

Arguments are not modified; results share unchanged parts with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Body = Mapping[str, Any]
# The keys of objects and the indexes of lists that lead to a value.
Path = tuple[str | int, ...]

_STEP = re.compile(r"\.([^.\[\]'\"\s]+)|\[(\d+)\]|\['([^']+)'\]")


def parsed_path(text: str) -> Path:
    """Return the steps of a path such as `.spec.groups[0]['example.com/template']`, as kubectl writes them.

    Raises ValueError.
    """
    if not re.fullmatch(rf"(?:{_STEP.pattern})+", text):
        raise ValueError(f"{text!r} is no path; write it as .spec.groups[0].template")
    return tuple(field or quoted or int(index) for field, index, quoted in _STEP.findall(text))


def value_at(body: Any, path: Path) -> Any:
    """Return the value at the path; None if something on the way is missing or of another type."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(body, Sequence) or isinstance(body, str) or step >= len(body):
                return None
            body = body[step]
        elif isinstance(body, Mapping):
            body = body.get(step)
        else:
            return None
    return body


def replaced(body: Any, path: Path, value: Any) -> Any:
    """Return the object with another value at the path. Objects on the way that are missing are created.

    Raises TypeError if something on the way is of another type.
    """
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(body, list):
            raise TypeError(f"{body!r} is no list")
        return [*body[:step], replaced(body[step], rest, value), *body[step + 1 :]]
    if not isinstance(body, Mapping | None):
        raise TypeError(f"{body!r} is no object")
    return {**(body or {}), step: replaced((body or {}).get(step), rest, value)}


def merged(target: Any, patch: Any) -> Any:
    """Return the value with a merge patch applied (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def path_text(path: Path) -> str:
    """Return the path as in messages: `spec.replicatedJobs[0].template`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
