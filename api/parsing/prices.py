"""Prices of hardware per hour, as labels and annotations state them, in any currency.

Prices only affect the reported cost of lost work, so an invalid price is reported and otherwise ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from api.keys import COST_PER_DEVICE_HOUR, NODE_COST_PER_HOUR

# Limits the effect of a mistyped price on a counter that can never decrease.
MOST_PER_HOUR = 1_000_000.0

_NUMBER = re.compile(r"[0-9]{1,16}(\.[0-9]{1,16})?")


def price(text: str | None) -> float | None:
    """Return the price in decimal digits (`2.95`.

    0 means free), or None if it is malformed or above the cap.
    """
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    found = float(text)
    return found if found <= MOST_PER_HOUR else None


def flavor_price_problem(annotations: Mapping[str, str]) -> str:
    """Return what is wrong with the price on a ResourceFlavor, "" if it is valid or absent."""
    text = annotations.get(COST_PER_DEVICE_HOUR)
    return _problem(f"metadata.annotations[{COST_PER_DEVICE_HOUR}]", text)


def node_price_problem(labels: Mapping[str, str]) -> str:
    """Return what is wrong with the price on a Node, "" if it is valid or absent."""
    return _problem(f"label {NODE_COST_PER_HOUR}", labels.get(NODE_COST_PER_HOUR))


def _problem(where: str, text: str | None) -> str:
    if text is None or price(text) is not None:
        return ""
    return (
        f"{where} is {text!r}: must be a number such as 2.95, at most {MOST_PER_HOUR:.0f}; "
        "it counts as not given where lost work is counted in money"
    )
