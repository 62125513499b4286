"""One running control plane: etcd and kube-apiserver, and when asked for controller manager and scheduler.

Everything listens on loopback, on ports of its own, in a folder of its own; users are two tokens. Nodes have
no kubelet: what a kubelet would say of nodes and pods is written by the test or by Berth's stand-in.
"""

from __future__ import annotations

import functools
import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.children import Child, Port
from tests.controlplane.binaries import Assets
from tests.controlplane.certificates import write_certificates
from tests.controlplane.rest import Rest, RestError

# Generous, because the two cores of a small machine may be busy with another test's control plane.
_READY_SECONDS = 90.0

# Those that a Job's or a namespace's life needs. Each further one costs informers and CPU in every run.
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)


class ControlPlane:
    """A real API server on loopback with its store, for one test process or for one test.

    `token` is of an administrator (group system:masters), `user_token` of the user `low`, which may do no
    more than every authenticated one, until a test binds a role. `rest` and `user_rest` are plain clients of
    the two, `kubeconfig` and `user_kubeconfig` the paths of their kubeconfig files.
    """

    def __init__(self, assets: Assets, folder: Path, *, apiserver_flags: Sequence[str] = ()) -> None:
        self.assets = assets
        self.folder = folder
        self._etcd_data = folder / "etcd"
        self._ports = {name: Port() for name in ("etcd", "kube-apiserver", "controllers", "scheduler")}
        self._certificates = write_certificates(folder)
        self.server = f"https://127.0.0.1:{self._ports['kube-apiserver'].number}"
        self.ca_file = str(self._certificates.authority)
        self.token, self.user_token = secrets.token_hex(16), secrets.token_hex(16)
        self.kubeconfig = self.write_kubeconfig("admin", self.token)
        self.user_kubeconfig = self.write_kubeconfig("low", self.user_token)
        self.rest = Rest(self.server, token=self.token, ca_file=self.ca_file)
        self.user_rest = Rest(self.server, token=self.user_token, ca_file=self.ca_file)
        self.etcd = self._child("etcd", self._etcd_flags())
        self.apiserver = self._child("kube-apiserver", [*self._apiserver_flags(), *apiserver_flags])
        self.controller_manager = self._child("kube-controller-manager", self._controller_manager_flags())
        self.scheduler = self._child("kube-scheduler", self._scheduler_flags())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and kube-apiserver and return when it is ready: 4-5 s on two free cores.

        Raises ChildError, with the end of the log, when one ends or is not ready in time.
        """
        self.etcd.start()
        self.apiserver.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return when the API server answers that it is ready. Raises ChildError when it does not in time."""
        self.apiserver.wait_ready(
            functools.partial(answers, self.rest, "/readyz"), timeout_seconds=_READY_SECONDS
        )

    def start_controllers(self) -> None:
        """Start kube-controller-manager and kube-scheduler, once; returns when both work: about 3 s."""
        for child, port, path in (
            (self.controller_manager, "controllers", "/healthz"),  # it has no /readyz
            (self.scheduler, "scheduler", "/readyz"),
        ):
            child.start()
            rest = Rest(f"https://127.0.0.1:{self._ports[port].number}", ca_file=self.ca_file)
            child.wait_ready(functools.partial(answers, rest, path), timeout_seconds=_READY_SECONDS)

    def kill_apiserver(self) -> None:
        """End kube-apiserver at once; its port refuses connections until `restart_apiserver`."""
        self.apiserver.kill()

    def restart_apiserver(self) -> None:
        """End kube-apiserver if it runs and start it again on the same port and data; returns when ready."""
        self.apiserver.kill()
        self.apiserver.start()
        self.wait_ready()

    def back_up_etcd(self) -> Path:
        """Return a copy of etcd's data as it is now. Stops both servers for it and starts them again."""
        copy = self.folder / "backup"
        self.apiserver.kill()
        self.etcd.stop()
        shutil.copytree(self._etcd_data, copy)
        self.start()
        return copy

    def restore_etcd(self, copy: Path) -> None:
        """Put a copy of etcd's data in place of the present data, as a restore from a backup does.

        As Kubernetes asks, the API server does not run meanwhile. Returns when it is ready.
        """
        self.apiserver.kill()
        self.etcd.stop()
        shutil.rmtree(self._etcd_data)
        shutil.copytree(copy, self._etcd_data)
        self.start()

    def stop(self) -> None:
        """End everything at once: the data is thrown away, so nothing is gained by asking politely."""
        for child in (self.scheduler, self.controller_manager, self.apiserver, self.etcd):
            child.kill()
        for port in self._ports.values():
            port.release()

    def create_namespace(self, prefix: str = "test-") -> str:
        """Create a namespace whose name begins with `prefix` and return the name."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": prefix}}
        return str(self.rest.create("/api/v1/namespaces", body)["metadata"]["name"])

    def _child(self, name: str, flags: Sequence[str]) -> Child:
        program = str(self.assets.folder / name)
        return Child(name=name, arguments=[program, *flags], log=self.folder / f"{name}.log")

    def _etcd_flags(self) -> list[str]:
        client = f"http://127.0.0.1:{self._ports['etcd'].number}"
        return [
            f"--data-dir={self._etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",  # the data need not outlive the machine
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        files = self._certificates
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n{self.user_token},low,low\n')
        tokens.chmod(0o600)
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd'].number}",
            f"--secure-port={self._ports['kube-apiserver'].number}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # the loopback address is refused as an endpoint
            f"--tls-cert-file={files.server_certificate}",
            f"--tls-private-key-file={files.server_key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files.service_account_key}",
            f"--service-account-signing-key-file={files.service_account_key}",
            # It would refuse pods until a controller has made each namespace's service account.
            "--disable-admission-plugins=ServiceAccount",
            # A pod on a failed node is evicted after 5 minutes by default: longer than any test.
            "--default-not-ready-toleration-seconds=2",
            "--default-unreachable-toleration-seconds=2",
            "--profiling=false",
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            *self._serving_flags("controllers"),
            "--leader-elect=false",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--root-ca-file={self.ca_file}",
            f"--service-account-private-key-file={self._certificates.service_account_key}",
            # No kubelet renews a node's lease here: what a node says of itself holds, and acts at once.
            "--node-monitor-grace-period=24h",
            "--node-monitor-period=1s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _scheduler_flags(self) -> list[str]:
        configuration = self.folder / "scheduler.json"
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "clientConnection": {"kubeconfig": self.kubeconfig, "qps": 500, "burst": 1000},
                    "leaderElection": {"leaderElect": False},
                    "podMaxBackoffSeconds": 1,  # 10 by default; a test waits for the next attempt
                }
            )
        )
        return [f"--config={configuration}", *self._serving_flags("scheduler")]

    def _serving_flags(self, port: str) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[port].number}",
            f"--tls-cert-file={self._certificates.server_certificate}",
            f"--tls-private-key-file={self._certificates.server_key}",
        ]

    def write_kubeconfig(self, user: str, token: str) -> str:
        """Write the kubeconfig of one user, as JSON, which every reader of YAML takes. Return its path."""
        cluster = {"server": self.server, "certificate-authority": self.ca_file}
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                }
            )
        )
        path.chmod(0o600)
        return str(path)


def answers(rest: Rest, path: str) -> bool:
    """Return whether a component answers `path` with success; not being reachable is a no."""
    try:
        rest.request("GET", path, timeout_seconds=2.0)
    except (RestError, OSError):
        return False
    return True
