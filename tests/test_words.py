"""The prose of sources and documentation is the plain English of kubernetes.io.

A Workload, a node or a quota is a thing: "a Workload that waits", never "whoever waits". The words below turn
things into persons or need a translation; established projects of this field use next to none of them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Words for persons, and turns of phrase that a reader of Kubernetes documentation would stumble over.
_ODD = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whomever|whom|in vain|anew|of equals"
    r"|stands? in (?:the|its) way|gives? way|gave way|to no avail|thereof|hitherto)\b",
    re.IGNORECASE,
)
# What the name of a test or of a case says of a thing; in a name, underscores hide the words above.
_ODD_IN_NAME = re.compile(
    r"\b(who|whom|whoever|nobodys?|somebodys?|anybodys?|everybodys?|anew|in vain|gives? way|gave way|told)\b"
)
# How many may slip through, in all files together.
_MOST = 10


def sources() -> list[Path]:
    """Return all Python sources and documents, of the tests too, but for this file, which lists the words."""
    folders = ("admission", "queues", "api", "bench", "docs", "deploy", "examples", "tests")
    found = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"}
    ]
    return [*(path for path in found if path != Path(__file__)), *sorted(ROOT.glob("*.md"))]


def test_few_words_of_a_private_dialect_slip_through() -> None:
    used = Counter({str(path.relative_to(ROOT)): len(_ODD.findall(path.read_text())) for path in sources()})

    assert used.total() <= _MOST, +used


def test_the_names_of_tests_and_cases_speak_of_things() -> None:
    names = [
        test or case
        for path in (ROOT / "tests").rglob("test_*.py")
        for test, case in re.findall(r"def (test_\w+)|\bid=\"([^\"]+)\"", path.read_text())
    ]

    assert len(names) > 1000
    assert [name for name in names if _ODD_IN_NAME.search(name.replace("_", " "))] == []
