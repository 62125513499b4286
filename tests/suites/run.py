"""One run of a suite: its binary with a control plane of its own, and Berth's controller as the suite asks.

Every process ends with the run, also if the run is killed: the binary is tied to this process, and the
control plane and the controllers to the binary.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.children import TIE, Child
from tests.controlplane.binaries import Assets
from tests.suites.applicable import not_applicable
from tests.suites.build import definitions_of_kueue, suite_folder
from tests.suites.report import Result, read_result

ROOT = Path(__file__).parents[2]
SUITES = (
    "scheduler",
    "scheduler/delayedadmission",
    "scheduler/excluderesources",
    "scheduler/fairsharing",
    "scheduler/inadmissible",
    "scheduler/podsready",
    "scheduler/quotacheckstrategy",
    "scheduler/resourcetransformations",
    "tas",
    "controller/admissionchecks/provisioning",
    "controller/core",
    "controller/dra",
    "controller/failurerecovery",
    "controller/jobframework/setup",
    "controller/jobs/appwrapper",
    "controller/jobs/jaxjob",
    "controller/jobs/job",
    "controller/jobs/jobset",
    "controller/jobs/mpijob",
    "controller/jobs/paddlejob",
    "controller/jobs/pod",
    "controller/jobs/pytorchjob",
    "controller/jobs/raycluster",
    "controller/jobs/rayjob",
    "controller/jobs/sparkapplication",
    "controller/jobs/statefulset",
    "controller/jobs/tfjob",
    "controller/jobs/trainjob",
    "controller/jobs/xgboostjob",
    "importer",
    "kueuectl",
    "webhook/core",
    "webhook/jobs",
)
# Above the time limit that the suite itself keeps, so that it can write its report.
_GRACE_SECONDS = 60.0
_START_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How suites are run. `focus` selects cases by a regular expression over their full names."""

    assets: Assets
    source: Path
    focus: str | None = None
    timeout_seconds: float


def run_suite(suite: str, binary: Path, folder: Path, setting: Setting) -> Result:
    """Run a suite and return its result. `folder` is for logs, configuration files and the report."""
    folder.mkdir(parents=True)
    report = folder / "report.json"
    child = Child(
        name=f"the suite {suite}",
        arguments=[str(binary), *_flags(suite, report, setting)],
        log=folder / "suite.log",
        environment={
            "ARTIFACTS": str(folder),
            "PROJECT_DIR": str(setting.source / "Makefile"),
            "PYTHONPATH": str(ROOT),
            "KUBEBUILDER_ASSETS": str(_tied_programs(setting.assets, folder / "programs")),
            "KUEUE_BIN": str(binary.parent),
            "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": f"{_START_SECONDS}s",
            "BERTH_SUITES_COMMAND": json.dumps([sys.executable, "-m", "tests.suites.controller"]),
            "BERTH_SUITES_FOLDER": str(folder),
            "BERTH_SUITES_DEFINITIONS": str(_definitions(setting.source, folder / "definitions")),
            "BERTH_SUITES_WEBHOOKS": str(_webhooks(folder / "webhooks")),
            "TMPDIR": str(_made(folder / "tmp")),
        },
        directory=suite_folder(setting.source, suite),
    )
    started, fault = time.monotonic(), ""
    with child:
        try:
            child.wait(setting.timeout_seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            fault = f"the suite did not end in {setting.timeout_seconds + _GRACE_SECONDS:.0f} s"
    return read_result(suite, report, seconds=time.monotonic() - started, fault=fault)


def _flags(suite: str, report: Path, setting: Setting) -> list[str]:
    flags = {
        "seed": "1",  # the order of top-level containers
        "json-report": str(report),
        "timeout": f"{setting.timeout_seconds:.0f}s",
        "no-color": "true",
        "v": "true",
    }
    if setting.focus is not None:
        flags["focus"] = setting.focus
    skipped = [f"--ginkgo.skip={re.escape(entry.name)}" for entry in not_applicable(suite)]
    return ["-test.timeout=0", *(f"--ginkgo.{name}={value}" for name, value in flags.items()), *skipped]


def _tied_programs(assets: Assets, folder: Path) -> Path:
    """Return a folder of programs that run the control plane's and end with their parent."""
    folder.mkdir()
    for name in ("etcd", "kube-apiserver"):
        words = [sys.executable, "-ISc", TIE]
        program = shlex.quote(str(assets.program(name)))
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$PPID" {program} "$@"\n')
        script.chmod(0o700)
    (folder / "kubectl").symlink_to(assets.folder / "kubectl")
    return folder


def _definitions(source: Path, folder: Path) -> Path:
    """Return a folder of our definitions, and of Kueue's for the kinds that we have none of.

    How versions are converted is left to the test environment, as in Kueue's: by its webhook, which we serve.
    """
    folder.mkdir()
    for path in (ROOT / "deploy" / "crds").glob("*_*.yaml"):
        definition = yaml.safe_load(path.read_text())
        definition["spec"].pop("conversion", None)
        (folder / path.name).write_text(yaml.safe_dump(definition))
    for path in definitions_of_kueue(source):
        if not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    return folder


def _webhooks(folder: Path) -> Path:
    """Return a folder of our webhook configurations, with paths as the test environment expects them."""
    folder.mkdir()
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "webhooks" / "webhooks.yaml").read_text()))
    for document in documents:
        for webhook in document["webhooks"]:
            # It puts a slash of its own before the path.
            service = webhook["clientConfig"]["service"]
            service["path"] = service["path"].removeprefix("/")
            if webhook["name"] == "pods.mutate.berth.dev":
                # As the file says for a cluster in which jobs without a queue are managed.
                del webhook["objectSelector"]
    (folder / "webhooks.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
