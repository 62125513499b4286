"""Manifests that a user has pasted into a form, as the objects of a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
import yaml

from admission.answers.what_if import BadQuestionError
from api.http.server import HttpError
from api.parsing.yaml_loader import MOST_LEVELS, KubernetesLoader, shallow_events

# Of the form. As manifests, 64 KiB may take a fifth of a second to parse.
MOST_FORM_BYTES = 64 << 10
_MOST_FIELDS = 10


def form_of(body: bytes | bytearray) -> Mapping[str, str]:
    """Return the fields of a form. Raises HttpError."""
    try:
        fields = parse_qs(bytes(body).decode(), max_num_fields=_MOST_FIELDS, keep_blank_values=True)
    except ValueError as error:
        raise HttpError(400, f"the form cannot be read: {error}") from error
    return {name: values[0] for name, values in fields.items()}


def question_of(text: str, namespace: str) -> bytes:
    """Return the body of `POST /v1/what-if` for manifests as YAML or JSON. Raises BadQuestionError.

    Slow: not for the event loop.
    """
    try:
        # A few lines of aliases can stand for gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in shallow_events(text)):
            raise BadQuestionError(
                "the manifests use YAML aliases (*name), which are not read here; write them out"
            )
        objects = [one for one in yaml.load_all(text, Loader=KubernetesLoader) if one is not None]
        return msgspec.json.encode({"objects": [*map(_checked, objects)], "namespace": namespace})
    except yaml.YAMLError as error:
        message = f"the manifests are neither YAML nor JSON: {' '.join(str(error).split())}"
        raise BadQuestionError(message) from error
    except RecursionError as error:
        message = f"the manifests are nested too deep: more than {MOST_LEVELS} levels"
        raise BadQuestionError(message) from error
    except BadQuestionError:
        raise
    # Such as keys that are no text, numbers that JSON has not, and values that are not of their tag's type.
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise BadQuestionError(f"the manifests cannot be read: {error}") from error


def _checked(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise BadQuestionError(f"the manifests hold a {type(one).__name__}; expected objects with a kind")
    return one
