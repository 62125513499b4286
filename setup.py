"""Puts api/checkpoint.py into the wheel as `berth_checkpoint` as well, for images that train.

Everything else stands in pyproject.toml, which has no word for a module under a second name.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithHelper(build_py):
    """The ordinary build, and one copy."""

    def run(self) -> None:
        """Build, then copy the helper beside the packages."""
        super().run()
        if not self.editable_mode:
            self.copy_file("api/checkpoint.py", str(Path(self.build_lib) / "berth_checkpoint.py"))


setup(cmdclass={"build_py": BuildWithHelper})
