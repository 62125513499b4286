"""Reads the GPUs of this machine: nvidia-smi in a child process, NUMA nodes from /sys."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from admission.node_agent.gpus import Gpu, Inventory, ReadingError
from admission.node_agent.links import Links, parse_links
from admission.node_agent.nvidia_smi import END, parse_inventory
from api.parsing.decimals import whole_number

# Without persistence mode the driver starts for each call, which takes seconds for each GPU.
_TIMEOUT_SECONDS = 60.0
# How long a killed process is waited for: one that hangs in the driver does not end.
_KILL_SECONDS = 5.0


class Hardware:
    """The GPUs of this machine. `nvidia_smi` is the program, `sys_root` the folder that is /sys."""

    def __init__(self, nvidia_smi: str, sys_root: Path, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._nvidia_smi = nvidia_smi
        self._sys_root = sys_root
        self._timeout_seconds = timeout_seconds

    async def read_inventory(self) -> Inventory:
        """Return the GPUs that nvidia-smi lists. Raises ReadingError."""
        code, text = await self._run("-q", "-x")
        # With a lost GPU some drivers fail and print the document all the same.
        if code != 0 and END not in text:
            raise self._failed("-q -x", code, text)
        return parse_inventory(text)

    async def read_links(self) -> Links:
        """Return the NVLinks between them. Raises ReadingError."""
        code, text = await self._run("topo", "-m")
        if code != 0:
            raise self._failed("topo -m", code, text)
        return parse_links(text)

    def read_numa_nodes(self, gpus: Iterable[Gpu]) -> dict[int, int]:
        """Return the NUMA node of each GPU by its index; GPUs whose node is unknown are left out."""
        only = 0 if self._read("devices/system/node/online") == "0" else None
        found = {}
        for gpu in gpus:
            # -1 where the firmware does not say; with one NUMA node there is no choice.
            node = whole_number(self._read(f"bus/pci/devices/{gpu.bus_id}/numa_node"))
            node = only if node is None else node
            if node is not None:
                found[gpu.index] = node
        return found

    def _read(self, path: str) -> str:
        """Return what a file of /sys says; "" where it cannot be read."""
        with suppress(OSError, UnicodeDecodeError):
            return (self._sys_root / path).read_text().strip()
        return ""

    def _failed(self, arguments: str, code: int, text: str) -> ReadingError:
        shown = " ".join(text.split())[:300] or "no output"
        return ReadingError(f"nvidia-smi {arguments} failed with exit code {code}: {shown}")

    async def _run(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the output of nvidia-smi. Raises ReadingError.

        A call into the driver may hang for ever. In a process of its own it can be given up.
        """
        name = f"nvidia-smi {' '.join(arguments)}"
        try:
            child = await asyncio.create_subprocess_exec(
                self._nvidia_smi, *arguments, stdout=PIPE, stderr=PIPE, env={**os.environ, "LC_ALL": "C"}
            )
        except OSError as error:
            raise ReadingError(
                f"cannot run {self._nvidia_smi} ({error.strerror}): is the NVIDIA driver in this container?"
            ) from error
        try:
            out, err = await asyncio.wait_for(child.communicate(), self._timeout_seconds)
        except TimeoutError as error:
            await _end(child)
            raise ReadingError(f"{name} gave no answer in {self._timeout_seconds:g} s") from error
        text = out.decode("utf-8", "replace")
        code = child.returncode or 0
        return code, text if code == 0 else text + err.decode("utf-8", "replace")


async def _end(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    with suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), _KILL_SECONDS)
