"""The temporary folder of a command with a live display: logs go there instead of to the terminal."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from admission.cli.common.errors import ExitCode, is_broken_pipe
from admission.controller.runtime.logs import KeyValueFormatter


class WorkFolder:
    """A folder that is deleted when a command ends. After a failure it remains, and stderr names its log."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._log = self.path / "berth.log"
        self._is_good = False
        self._handler = logging.FileHandler(self._log, encoding="utf-8", delay=True)
        self._before: tuple[list[logging.Handler], int] = ([], logging.WARNING)

    def ended(self, code: int) -> int:
        """Record the command's exit code, and return it."""
        self._is_good = code == ExitCode.DONE
        return code

    def __enter__(self) -> WorkFolder:
        self._handler.setFormatter(KeyValueFormatter())
        root = logging.getLogger()
        self._before = root.handlers[:], root.level
        root.handlers[:] = [self._handler]
        root.setLevel(logging.INFO)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        root.handlers[:], root.level = self._before
        self._handler.close()
        was_left = kind is KeyboardInterrupt or (error is not None and is_broken_pipe(error))
        # Without a log file, the error itself is the only information.
        if self._is_good or was_left or not self._log.exists():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"the log is in {self._log}", file=sys.stderr)
