"""`python -m bench`: runs every benchmark in turn. Each has a command of its own (`python -m bench.decide`).

Figures depend on the machine and on what else runs on it: compare within one run, and quote medians.
"""

from __future__ import annotations

import subprocess
import sys

_BENCHES = (
    "decide",
    "scale",
    "promises",
    "placement",
    "extender",
    "throughput",
    "owners",
    "recovery",
    "failover",
    "outages",
    "node_kills",
)


def main() -> int:
    """Run all benchmarks. Return the first exit code that is not 0, otherwise 0."""
    code = 0
    for name in _BENCHES:
        print(f"== bench.{name}", flush=True)
        code = code or subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
