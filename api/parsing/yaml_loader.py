"""YAML as Kubernetes reads it: timestamps stay text, which YAML 1.1 would convert to dates.

Read foreign text by `load` and `load_all`, or after `shallow_events`: the C loader builds a document by
recursion that nothing limits, so that a few kilobytes of brackets would end the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

# The deepest field of a Kubernetes object is at about 20.
MOST_LEVELS = 100
# The C loader is several times faster, but not always available.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KubernetesLoader(_SafeLoader):  # type: ignore[misc] # either of two classes
    """Loads plain values alone, and timestamps as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and form
        first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }


def load(text: str | bytes) -> Any:
    """Return the only document. Raises yaml.YAMLError, and RecursionError beyond MOST_LEVELS."""
    _check_levels(text)
    return yaml.load(text, Loader=KubernetesLoader)


def load_all(text: str | bytes) -> Iterator[Any]:
    """Yield all documents. Raises yaml.YAMLError, and RecursionError beyond MOST_LEVELS."""
    _check_levels(text)
    yield from yaml.load_all(text, Loader=KubernetesLoader)


def shallow_events(text: str | bytes) -> Iterator[yaml.Event]:
    """Yield what the parser finds, before anything is built. Raises the same where the text is at fault."""
    level = 0
    for event in yaml.parse(text, Loader=KubernetesLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MOST_LEVELS:
            raise RecursionError(f"nested in more than {MOST_LEVELS} levels")
        yield event


def _check_levels(text: str | bytes) -> None:
    for _ in shallow_events(text):
        pass
