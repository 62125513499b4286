"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import files, objects, submitted, texts
from tests.fuzz.target import Target

TARGETS: tuple[Target, ...] = (*texts.TARGETS, *objects.TARGETS, *submitted.TARGETS, *files.TARGETS)
