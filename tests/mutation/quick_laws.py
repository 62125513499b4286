"""A pytest plugin: laws try the same examples for every mutant, and do not look for a smaller counterexample.

A mutant is noticed by the first example that fails. To shrink it takes seconds to minutes, and the result is
not read.
"""

from __future__ import annotations

from hypothesis import Phase, settings

# Loaded before tests/conftest.py and the tests, so that the settings of every law are made from it.
settings.register_profile(
    "mutation", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate), print_blob=False
)
settings.load_profile("mutation")
