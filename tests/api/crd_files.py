"""The files of deploy/crds. `python -m tests.api.crd_files` regenerates them after a change of a model."""

from __future__ import annotations

from pathlib import Path

from api.definitions.crds import KINDS, Kind, crd_yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "crds"
_HEADER = "# Generated from api/models. Regenerate it with: python -m tests.api.crd_files\n"
_KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"


def file_name(kind: Kind) -> str:
    """Return the name of the file with this kind's CustomResourceDefinition."""
    return f"{kind.group}_{kind.plural}.yaml"


def wanted() -> dict[str, str]:
    """Return the text of each file by its name."""
    files = {file_name(kind): _HEADER + crd_yaml(kind, with_older=True) for kind in KINDS}
    listed = "".join(f"  - {name}\n" for name in sorted(files))
    return {**files, "kustomization.yaml": _HEADER + _KUSTOMIZATION + listed}


def main() -> None:
    """Write every file."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in wanted().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
