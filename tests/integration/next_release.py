"""`berth` as a later release may be: it stores rows of the plan and reservations in other forms."""

from __future__ import annotations

import sys

from queues.reservations import plan

# Before any module has read it.
plan.SCHEMA = 2

from queues.store import encoding  # noqa: E402  # it reads the number above

encoding.FORMAT = b"2"

from admission.cli.__main__ import main  # noqa: E402  # it imports what reads both

if __name__ == "__main__":
    sys.exit(main())
