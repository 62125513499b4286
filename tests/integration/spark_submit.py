"""spark-submit without Spark: creates the driver's pod as Spark would, and the executors as the driver would.

The Spark operator runs `$SPARK_HOME/bin/spark-submit`, a Java program that writes one pod. A test puts this
module there (`install`). It reads the properties that place and size pods; everything else has no effect.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest

_SERVER, _TOKEN, _AUTHORITY = "BERTH_TEST_SERVER", "BERTH_TEST_TOKEN", "BERTH_TEST_CA"
_CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
Properties = Mapping[str, str]


def install(folder: Path, plane: ControlPlane) -> Mapping[str, str]:
    """Install the program below a folder, and return the environment of an operator that is to use it."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {__name__} "$@"\n')
    program.chmod(0o755)
    return {
        "SPARK_HOME": str(folder),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        # It passes the address on, as that of the master.
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": plane.server.rpartition(":")[2],
        _SERVER: plane.server,
        _TOKEN: plane.token,
        _AUTHORITY: plane.ca_file,
    }


def properties_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the properties of a command line: what follows each --conf."""
    pairs = itertools.pairwise(arguments)
    return dict(value.split("=", 1) for flag, value in pairs if flag == "--conf")


def below(properties: Properties, prefix: str) -> dict[str, str]:
    """Return the properties with this prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}


def pod(properties: Properties, role: str, name: str) -> dict[str, Any]:
    """Return the pod of a role as its properties say."""
    own = f"spark.kubernetes.{role}."
    requests = {"cpu": properties.get(f"{own}request.cores", "1")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**below(properties, f"{own}label."), "spark-role": role},
            "annotations": below(properties, f"{own}annotation."),
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": below(properties, f"{own}node.selector."),
            "containers": [{"name": _CONTAINERS[role], "image": "none", "resources": {"requests": requests}}],
        },
    }


def submit(rest: Rest, namespace: str, properties: Properties) -> None:
    """Create the driver's pod, and the executors that belong to it."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    driver = rest.create(pods, pod(properties, "driver", properties["spark.kubernetes.driver.pod.name"]))
    name, uid = driver["metadata"]["name"], driver["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    for number in range(1, int(properties["spark.executor.instances"]) + 1):
        executor = pod(properties, "executor", f"{name}-exec-{number}")
        executor["metadata"]["ownerReferences"] = [owner]
        executor["metadata"]["labels"]["spark-exec-id"] = str(number)
        rest.create(pods, executor)


def main(arguments: Sequence[str]) -> None:
    """Submit what a command line of spark-submit says."""
    environment = os.environ
    rest = Rest(environment[_SERVER], token=environment[_TOKEN], ca_file=environment[_AUTHORITY])
    properties = properties_of(arguments)
    submit(rest, properties["spark.kubernetes.namespace"], properties)


if __name__ == "__main__":
    main(sys.argv[1:])
