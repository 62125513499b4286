"""The fields in docs/policy.md. `python -m tests.policy_reference` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.definitions.structural_schema import structural_schema
from api.models.admission_policy import AdmissionPolicy

PAGE = Path(__file__).parents[1] / "docs" / "policy.md"
MARK = "<!-- Below: written by python -m tests.policy_reference -->\n"


def wanted() -> str:
    """Return the whole page: what is above the mark, and the fields as the model has them."""
    text = PAGE.read_text()
    return text[: text.index(MARK) + len(MARK)] + _reference()


def main() -> None:
    """Write the page."""
    PAGE.write_text(wanted())


def _reference() -> str:
    spec = structural_schema(AdmissionPolicy)["properties"]["spec"]
    return "".join(_section(name, node) for name, node in spec["properties"].items())


def _section(name: str, node: dict[str, Any]) -> str:
    heading = f"\n## {name}\n\n{node['description']}\n"
    lines = "".join(
        f"| `{path}` | {default} | {meaning} |\n" for path, default, meaning in _rows(node.get("items", node))
    )
    return heading + (f"\n| field | default | meaning |\n|---|---|---|\n{lines}" if lines else "")


def _rows(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, node in schema.get("properties", {}).items():
        inner = node["items"] if node.get("type") == "array" else node
        path = f"{prefix}{name}{'[]' if inner is not node else ''}"
        yield path, _shown(node.get("default")), node["description"]
        # How a label selector is written is in Kubernetes' own reference.
        if name != "selector":
            yield from _rows(inner, f"{path}.")


def _shown(default: object) -> str:
    if default in (None, {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    main()
