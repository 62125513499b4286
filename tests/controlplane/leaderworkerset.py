"""The real controller of LeaderWorkerSets, where it has been built: how it is found, built and run.

Kept apart from the control plane: it is a project of its own, which few tests need and no machine has to
have. It comes with the definition of its kind, for which no other definition of that name may be there.
"""

from __future__ import annotations

import base64
import functools
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.children import Child, Port
from tests.controlplane.binaries import (
    AssetsMissing,
    build_once,
    cache_root,
    find_go,
    fingerprint,
    pinned,
    run_go,
)
from tests.controlplane.definitions import install_crds
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest, RestError

MODULE = Path(__file__).parent / "lws"
_NAME = "sigs.k8s.io/lws"
_GROUP = "leaderworkerset.x-k8s.io"
_PROGRAM, _DEFINITION = "lws-controller", "definition.yaml"
_BUILD = ("build", "-trimpath", "-ldflags", "-s -w")
_REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
_READY_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderWorkerSetAssets:
    """The program of the controller, and the definition of its kind."""

    program: Path
    definition: dict[str, Any]


def find_leaderworkerset() -> LeaderWorkerSetAssets:
    """Return the controller of the cache. Raises AssetsMissing when it was not built; never builds."""
    folder = _cache_folder()
    if not folder.is_dir():
        raise AssetsMissing("no LeaderWorkerSet controller; `make leaderworkerset` builds it once")
    definition = yaml.safe_load((folder / _DEFINITION).read_text())
    return LeaderWorkerSetAssets(program=folder / _PROGRAM, definition=definition)


def build_leaderworkerset(say: Callable[[str], None]) -> Path:
    """Build the controller into the cache unless it is there, and return the folder.

    Raises AssetsMissing without a usable Go or without network.
    """
    return build_once(_cache_folder(), functools.partial(_build_into, say=say), say)


def _cache_folder() -> Path:
    sources = [MODULE / name for name in ("go.mod", "go.sum", "tools.go")]
    return cache_root() / f"leaderworkerset-{pinned(_NAME, MODULE)}-{fingerprint(repr(_BUILD), sources)}"


def _build_into(output: Path, *, say: Callable[[str], None]) -> None:
    go, started = find_go(), time.monotonic()
    command = [go, *_BUILD, "-o", str(output / _PROGRAM), f"{_NAME}/cmd"]
    run_go(command, "building the LeaderWorkerSet controller", started, say, module=MODULE)
    # The build has fetched the module, which has the definition beside the sources.
    listing = [go, "list", "-m", "-f", "{{.Dir}}", _NAME]
    found = subprocess.run(listing, cwd=MODULE, capture_output=True, text=True, check=True).stdout.strip()
    definition = Path(found) / "config" / "crd" / "bases" / f"{_GROUP}_leaderworkersets.yaml"
    shutil.copyfile(definition, output / _DEFINITION)


class LeaderWorkerSetController:
    """The controller as a process beside a control plane, with the webhooks by which it marks its pods."""

    def __init__(self, assets: LeaderWorkerSetAssets, plane: ControlPlane, folder: Path) -> None:
        self._assets, self._plane = assets, plane
        self._ports = {name: Port() for name in ("webhook", "health")}
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(self._config(folder)))
        arguments = [str(assets.program), "--config", str(config), "--leader-elect=false"]
        self.child = Child(
            name=_PROGRAM,
            arguments=[*arguments, "--kubeconfig", plane.kubeconfig],
            log=folder / f"{_PROGRAM}.log",
        )

    @property
    def children(self) -> tuple[Child, ...]:
        """The process, whose log is shown with a failure."""
        return (self.child,)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        rest = self._plane.rest
        install_crds(rest, [self._assets.definition])
        self.child.start()
        port = self._ports["webhook"].number
        webhook = Rest(f"https://127.0.0.1:{port}", ca_file=self._plane.ca_file)
        self.child.wait_ready(functools.partial(_listens, webhook), timeout_seconds=_READY_SECONDS)
        for kind, body in self._registrations():
            rest.create(f"{_REGISTRATIONS}/{kind}", body)

    def _stop(self) -> None:
        for kind, body in self._registrations():
            self._plane.rest.delete(f"{_REGISTRATIONS}/{kind}/{body['metadata']['name']}")
        self.child.kill()
        for port in self._ports.values():
            port.release()

    def _config(self, folder: Path) -> dict[str, Any]:
        # The API server's own certificate is good for this machine, and its authority is known.
        certificates = folder / "certificates"
        certificates.mkdir()
        for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
            shutil.copyfile(self._plane.folder / ours, certificates / theirs)
        return {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "internalCertManagement": {"enable": False},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._ports["webhook"].number,
                "certDir": str(certificates),
            },
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._ports['health'].number}"},
        }

    def _registrations(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the webhooks as its own manifests have them, at an address of this machine."""
        sets = {"apiGroups": [_GROUP], "apiVersions": ["v1"], "resources": ["leaderworkersets"]}
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        both = ["CREATE", "UPDATE"]
        marked = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
        return [
            self._registration(
                "Mutating",
                self._webhook("mleaderworkerset", f"/mutate-{_path(_GROUP)}-v1-leaderworkerset", sets, both),
                self._webhook("mpod", "/mutate--v1-pod", pods, ["CREATE"], objectSelector=marked),
            ),
            self._registration(
                "Validating",
                self._webhook(
                    "vleaderworkerset", f"/validate-{_path(_GROUP)}-v1-leaderworkerset", sets, both
                ),
                self._webhook("vpod", "/validate--v1-pod", pods, both, objectSelector=marked),
            ),
        ]

    def _registration(self, kind: str, *webhooks: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        name = f"{kind}WebhookConfiguration"
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": name,
            "metadata": {"name": f"lws-{kind.lower()}-webhook-configuration"},
            "webhooks": list(webhooks),
        }
        return f"{name.lower()}s", body

    def _webhook(
        self, name: str, path: str, rule: dict[str, Any], operations: list[str], **fields: Any
    ) -> dict[str, Any]:
        url = f"https://127.0.0.1:{self._ports['webhook'].number}{path}"
        authority = Path(self._plane.ca_file).read_bytes()
        return {
            "name": f"{name}.kb.io",
            "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
            "rules": [{**rule, "operations": operations}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            # Others may mark the same pods before or after.
            **({"reinvocationPolicy": "IfNeeded"} if name.startswith("m") else {}),
            **fields,
        }


def _path(group: str) -> str:
    return group.replace(".", "-")


def _listens(webhook: Rest) -> bool:
    try:
        webhook.get("/")
    except RestError:
        return True  # a webhook answers no GET, but it answers
    except OSError:
        return False
    return True
