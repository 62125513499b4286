"""How many examples a law tries: `@trying(40)` in place of hypothesis's own `@settings`.

`make laws` multiplies all of them at once, by BERTH_EXAMPLES (a whole number), and tries examples that no run
has tried before. Elsewhere CI tries the same examples each time, and other runs draw new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# What `make laws` sets: how many times its examples a law tries.
VARIABLE = "BERTH_EXAMPLES"

# The number of examples of a law that names none, as hypothesis has it.
_DEFAULT = 100


def factor() -> int:
    """Return by how much the examples of each law are multiplied. Raises ValueError for a wrong variable."""
    text = os.environ.get(VARIABLE, "1")
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ValueError(f"{VARIABLE} is {text!r}, but must be a whole number above 0")
    return int(text)


def trying(examples: int = _DEFAULT, *, steps: int = 50, is_hard_to_draw: bool = False) -> settings:
    """Return the settings of a law that tries `examples` examples; `steps` are those of a state machine.

    How long an example takes, or is drawn, depends on the machine and fails nothing. `is_hard_to_draw` is for
    a law whose examples are large, or are often thrown away.
    """
    law = settings(
        max_examples=examples * factor(),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck) if is_hard_to_draw else [HealthCheck.too_slow],
    )
    # A search must not repeat what CI tries, nor what an earlier search has found and kept.
    return settings(law, derandomize=False, database=None) if VARIABLE in os.environ else law
