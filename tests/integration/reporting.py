"""Pods that report their checkpoints, with their own tokens."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.integration.replica import Replica
from tests.integration.scene import Scene


def create_account(scene: Scene) -> None:
    """Create the ServiceAccount of the pods that report."""
    path = f"/api/v1/namespaces/{scene.namespace}/serviceaccounts"
    scene.rest.create(path, {"metadata": {"name": "trainer"}})


@dataclass(frozen=True, slots=True)
class Reporter:
    """A pod of the ServiceAccount `trainer`, and the door to which it reports."""

    scene: Scene
    controller: Replica
    pod: Mapping[str, Any]

    def token(self, *, audience: str = "berth.dev", is_bound: bool = True) -> str:
        """Return a new token of its ServiceAccount, for its pod."""
        metadata = self.pod["metadata"]
        reference = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [audience] if audience else []}
        accounts = f"/api/v1/namespaces/{self.scene.namespace}/serviceaccounts/trainer/token"
        body = {"spec": {**spec, **({"boundObjectRef": reference} if is_bound else {})}}
        return str(self.scene.rest.create(accounts, body)["status"]["token"])

    def post(self, report: object, token: str | None) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        """Return status, body and headers of the answer to a report."""
        address = urlsplit(self.controller.urls()["http"])
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30.0)
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        body = report if isinstance(report, bytes) else json.dumps(report).encode()
        try:
            connection.request("POST", "/v1/checkpoints", body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), dict(answer.headers)
        finally:
            connection.close()
