"""A machine with GPUs for the node agent: a program nvidia-smi that prints recorded outputs, and a /sys."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from admission.node_agent.gpus import Gpu
from tests.admission.node_agent.recorded import OUTPUTS, failure, inventory_of

_SCRIPT = """#!/bin/sh
# What it prints lies in the folder of this script.
here=$(dirname "$0")
echo "$*" >> "$here/calls"
if [ -e "$here/failure" ]; then cat "$here/failure"; exit "$(cat "$here/code")"; fi
case "$*" in
"-q -x") cat "$here/query.xml" ;;
"topo -m") cat "$here/topology.txt" ;;
*) echo "Invalid combination of input arguments."; exit 2 ;;
esac
"""


class Machine:
    """One machine below `folder`: `nvidia_smi` is its program, `sys_root` its /sys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nvidia_smi = str(folder / "nvidia-smi")
        self.sys_root = folder / "sys"
        folder.mkdir(parents=True, exist_ok=True)
        Path(self.nvidia_smi).write_text(_SCRIPT)
        Path(self.nvidia_smi).chmod(0o755)

    def become(self, machine: str, numa_nodes: Mapping[int, int] | None = None) -> tuple[Gpu, ...]:
        """Have the GPUs of a recorded machine, on these NUMA nodes by index; return those that answer."""
        (self.folder / "failure").unlink(missing_ok=True)
        for name in ("query.xml", "topology.txt"):
            shutil.copy(OUTPUTS / machine / name, self.folder)
        gpus = inventory_of(machine).gpus
        for gpu in gpus:
            node = (numa_nodes or {}).get(gpu.index, -1)
            self.write_sys(f"bus/pci/devices/{gpu.bus_id}/numa_node", f"{node}\n")
        return gpus

    def fail(self, name: str, code: int) -> None:
        """Print a recorded failure from now on, and end with this exit code."""
        (self.folder / "code").write_text(str(code))
        (self.folder / "failure").write_text(failure(name))

    def hang(self) -> None:
        """Answer nothing from now on."""
        Path(self.nvidia_smi).write_text("#!/bin/sh\nexec sleep 600\n")

    def write_sys(self, path: str, text: str) -> None:
        """Write a file of /sys."""
        file = self.sys_root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def calls(self) -> int:
        """Return how often the program was called."""
        calls = self.folder / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0
