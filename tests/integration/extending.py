"""A kube-scheduler that asks Berth's extender, with the configuration that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.children import Child
from tests.controlplane import ControlPlane


def listening(extender: Child) -> str:
    """Return the extender's URL; empty while it has none."""
    lines = extender.log.read_text().splitlines() if extender.log.exists() else []
    found = [line for line in lines if line.startswith('{"event": "listening"')]
    return str(json.loads(found[0])["extender"]) if found else ""


def kube_scheduler(plane: ControlPlane, folder: Path, url: str) -> Child:
    """Return a kube-scheduler of its own name with our configuration, led to this extender."""
    shipped = Path(__file__).parents[2] / "deploy" / "extender" / "scheduler-config.yaml"
    config = yaml.safe_load(shipped.read_text())
    config["extenders"][0]["urlPrefix"] = url
    config |= {
        "clientConnection": {"kubeconfig": plane.kubeconfig},
        "leaderElection": {"leaderElect": False},
        # Another scheduler of the control plane has the default's name.
        "profiles": [{"schedulerName": SCHEDULER}, *config["profiles"][1:]],
    }
    path = folder / "scheduler.json"
    path.write_text(json.dumps(config))
    arguments = [str(plane.assets.program("kube-scheduler")), f"--config={path}", "--secure-port=0"]
    return Child(name="kube-scheduler", arguments=arguments, log=folder / "scheduler.log")


SCHEDULER = "gpu-scheduler"
