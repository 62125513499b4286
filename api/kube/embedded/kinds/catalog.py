"""The kinds that are served, by group, version and plural.

CRDs are added and removed while the server runs.
"""

from collections.abc import Iterator

from api.kube.embedded.kinds.kinds import Kind


class Catalog:
    """The served kinds.

    The versions of a group stay in the order in which they were added; the first is preferred.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}

    def add(self, kind: Kind) -> None:
        """Serve a kind, or replace the description of one that is already served."""
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        """Stop serving a kind; do nothing if it is not served."""
        self._kinds.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind, or None if it is not served."""
        return self._kinds.get((group, version, plural))

    def versions_of(self, group: str, plural: str) -> list[Kind]:
        """Return every served version of a kind."""
        return [kind for kind in self if (kind.group, kind.plural) == (group, plural)]

    def __iter__(self) -> Iterator[Kind]:
        """Iterate over the kinds, in the order in which they were added."""
        return iter(list(self._kinds.values()))

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group, the preferred one first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found
