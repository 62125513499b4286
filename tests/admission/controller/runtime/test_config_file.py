"""The section `extender` of the configuration file takes effect while the process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.controller.runtime.config_file import ConfigFile
from admission.controller.runtime.logs import KeyValueFormatter
from api.config.berth import ExtenderSettings

HEAD = "apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\n"


def written(path: Path, least_gb: int) -> None:
    path.write_text(f"{HEAD}extender: {{minGpuMemoryGb: {least_gb}}}\n")


def test_each_text_that_can_be_read_is_taken_once(tmp_path: Path) -> None:
    path, taken = tmp_path / "config.yaml", list[ExtenderSettings]()
    file = ConfigFile(path, taken.append)
    written(path, 8)
    file.look()
    file.look()
    written(path, 16)
    file.look()

    assert [one.min_gpu_memory_gb for one in taken] == [8, 16]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(f"{HEAD}extender: {{minGpuMemoryGb: much}}\n", "minGpuMemoryGb", id="a wrong value"),
        pytest.param(f"{HEAD}extender: [\n", "yaml", id="no YAML"),
        pytest.param("kind: Pod\n", "expected Configuration", id="another kind"),
        pytest.param(None, "No such file", id="no file"),
    ],
)
def test_a_text_that_breaks_rules_is_named_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, want: str
) -> None:
    path, taken = tmp_path / "config.yaml", list[ExtenderSettings]()
    file = ConfigFile(path, taken.append)
    written(path, 8)
    file.look()
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    file.look()
    file.look()

    assert len(taken) == 1
    (said,) = map(KeyValueFormatter().format, caplog.records)
    assert "WARNING configuration-not-taken" in said
    assert want in said

    # As it was before: nothing has to change, and a mended text is taken.
    written(path, 8)
    file.look()
    written(path, 24)
    file.look()
    assert [one.min_gpu_memory_gb for one in taken] == [8, 24]
