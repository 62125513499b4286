"""deploy/ on a real API server, as `kubectl apply -k` leaves it, and what the server allows to which user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests import parts
from tests.controlplane import ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "berth-system"
ACCOUNT = "berth-controller"
# The ServiceAccount as RBAC and audit logs name it.
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TOKENS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
_APPLY_SECONDS = 120.0


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """Run kubectl as the administrator and return what it prints. Raises AssertionError when it fails."""
    # A home of its own, because kubectl caches the discovery of a server in files, by its address.
    environment = {"KUBECONFIG": plane.kubeconfig, "HOME": str(plane.folder), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [parts.find_kubectl(), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_APPLY_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def install(plane: ControlPlane) -> None:
    """Run the script of deploy/ as the administrator. Raises AssertionError when it fails."""
    programs = Path(parts.find_kubectl()).parent
    environment = {
        "KUBECONFIG": plane.kubeconfig,
        "HOME": str(plane.folder),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    command = ["sh", str(DEPLOY / "install.sh"), "--no-wait"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_APPLY_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr


def account_kubeconfig(plane: ControlPlane) -> str:
    """Return the path of a kubeconfig of the controller's ServiceAccount, with a token of an hour."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.rest.create(_TOKENS, asked)["status"]["token"]
    return plane.write_kubeconfig(ACCOUNT, token)


def bind(plane: ControlPlane, role: str, user: str, *, namespace: str | None = None) -> None:
    """Bind a ClusterRole to a user, in one namespace or everywhere."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    room = f"/namespaces/{namespace}" if namespace else ""
    plane.rest.create(f"{RBAC}{room}/{kind.lower()}s", body)


def may(plane: ControlPlane, user: str, right: str, *, namespace: str = "") -> bool:
    """Return what `kubectl auth can-i --as USER` answers; `right` is "VERB GROUP/RESOURCE[/SUBRESOURCE]"."""
    verb, _, what = right.partition(" ")
    group, resource, *subresource = what.split("/")
    attributes: dict[str, Any] = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource[0]
    review = plane.rest.create(_REVIEWS, {"spec": {"user": user, "resourceAttributes": attributes}})
    return bool(review["status"]["allowed"])


def has_bundle(definition: Any) -> bool:
    """Return whether kube-apiserver knows the authority of the webhook that converts for a definition."""
    return "caBundle" in definition["spec"]["conversion"]["webhook"]["clientConfig"]
