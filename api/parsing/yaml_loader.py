"""YAML as Kubernetes reads it: timestamps stay text, which YAML 1.1 would convert to dates."""

from __future__ import annotations

from typing import Any

import yaml

# The C loader is several times faster, but not always available.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KubernetesLoader(_SafeLoader):  # type: ignore[misc] # either of two classes
    """Loads plain values alone, and timestamps as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and form
        first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }
