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
# How many may slip through, in all files together.
_MOST = 10


def sources() -> list[Path]:
    folders = ("admission", "queues", "api", "bench", "docs", "deploy", "examples")
    found = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"}
    ]
    return found + sorted(ROOT.glob("*.md"))


def test_few_words_of_a_private_dialect_slip_through() -> None:
    used = Counter({str(path.relative_to(ROOT)): len(_ODD.findall(path.read_text())) for path in sources()})

    assert used.total() <= _MOST, +used
