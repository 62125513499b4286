"""`berth completion`: what shells offer at a TAB."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from admission.cli.__main__ import COMMANDS, main
from tests.cli_reference import flags_of


@pytest.fixture
def bash_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the script for bash."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "berth.bash"
    script.write_text(capsys.readouterr().out)
    return script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param("berth ", {*COMMANDS}, id="every command"),
        pytest.param("berth exp", {"explain"}, id="the commands that begin so"),
        pytest.param("berth get --st", {"--status"}, id="the flags of the command"),
        pytest.param("berth completion ", {"bash", "zsh", "fish"}, id="the values of an argument"),
    ],
)
def test_what_bash_offers(line: str, want: set[str], bash_script: Path) -> None:
    words = line.split(" ")
    ask = (
        f'source "{bash_script}"; COMP_WORDS=({" ".join(words[:-1])} "{words[-1]}"); '
        f'COMP_CWORD={len(words) - 1}; _shtab_berth berth "{words[-1]}" {words[-2]}; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )

    said = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, timeout=30)

    offered = {word for word in said.stdout.split() if not word.startswith("-") or words[-1]}
    assert offered == want


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_has_every_command_and_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0

    printed = capsys.readouterr().out
    flags = {flag.lstrip("-") for name in COMMANDS for flag in flags_of(name)}
    assert [word for word in (*COMMANDS, *sorted(flags)) if word not in printed] == []
