"""What keeps a controller from starting is one clear sentence on stderr, and an exit code that says more.

2 is wrong input, 3 an API server or a store that cannot be reached or will not serve.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import parts
from tests.children import Port
from tests.controlplane import ControlPlane
from tests.controlplane.definitions import CRDS, install_crds
from tests.integration.conftest import Cluster, Controllers
from tests.owners import EXTERNAL, EXTERNAL_SAMPLE, definition
from tests.redisserver import RedisMissing, find_redis

pytestmark = pytest.mark.xdist_group("bad-input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a controller is started, and how it ends: with this exit code, and a sentence that begins so.

    `path` comes first in PATH. In all texts TMP is replaced by the test's folder, PORT by a port on which
    nothing listens, REDIS for the path of a Redis server.
    """

    flags: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    kubeconfig: str = ""
    path: str = ""
    code: int
    says: str


class Filling:
    """Puts what a test found out in the place of words in capitals."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def __call__(self, text: str) -> str:
        """Return the text, filled in."""
        return re.sub("|".join(self._values), lambda match: self._values[match[0]], text)


def _redis_path() -> str:
    """Return the path of the server that tests run on, the bundled one too; "" without any."""
    try:
        return str(find_redis()[0])
    except RedisMissing:
        return ""


@pytest.fixture
def fill(tmp_path: Path) -> Iterator[Filling]:
    """Give what fills in the texts of a Start."""
    port = Port()
    yield Filling(TMP=str(tmp_path), PORT=str(port.number), REDIS=_redis_path())
    port.release()


NOWHERE = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""
SHORT_LEASE = """
apiVersion: berth.dev/v1alpha1
kind: ControllerConfig
lease: {durationSeconds: 2}
"""
# A Redis that cannot write a byte into a file, as on a full disk.
FULL_DISK = """#!/bin/sh
ulimit -f 0
exec REDIS "$@"
"""


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(
            Start(
                kubeconfig="TMP/none",
                code=2,
                says="the kubeconfig TMP/none does not exist; name one with --kubeconfig or $KUBECONFIG",
            ),
            id="a kubeconfig that does not exist",
        ),
        pytest.param(
            Start(
                kubeconfig="TMP/bad",
                files={"bad": "clusters: ["},
                code=2,
                says="the kubeconfig TMP/bad is not YAML: ",
            ),
            id="a kubeconfig that is no YAML",
        ),
        pytest.param(
            Start(
                kubeconfig="TMP/nowhere",
                files={"nowhere": NOWHERE},
                code=3,
                says="cannot reach the API server http://127.0.0.1:PORT of TMP/nowhere (context 'c'):"
                " [Errno 111] Connect call failed ('127.0.0.1', PORT); check that it runs and that the"
                " address is right",
            ),
            id="an API server that is not there",
        ),
        pytest.param(
            Start(
                flags=["--redis", "redis://127.0.0.1:PORT/0", "--require-store"],
                code=3,
                says="Redis at redis://127.0.0.1:PORT/0 does not answer (Error 111 connecting to"
                " 127.0.0.1:PORT. Connect call failed ('127.0.0.1', PORT)): start it there, or correct its"
                " URL",
            ),
            id="a required Redis that is not there",
        ),
        pytest.param(
            Start(
                flags=["--redis", "http://redis:6379"],
                code=2,
                says="'http://redis:6379' is no store's URL (Redis URL must specify one of the following"
                " schemes (redis://, rediss://, unix://)); a store's URL is redis://",
            ),
            id="a store that is no Redis",
        ),
        pytest.param(
            Start(
                flags=["--config", "TMP/none"],
                code=2,
                says="cannot read the configuration TMP/none: [Errno 2] No such file or directory",
            ),
            id="a configuration that is missing",
        ),
        pytest.param(
            Start(
                flags=["--config", "TMP/bad"],
                files={"bad": "a: [\nb"},
                code=2,
                says="TMP/bad: line 2, column 2 is not YAML: expected ',' or ']', but got '<stream end>'",
            ),
            id="a configuration that is no YAML",
        ),
        pytest.param(
            Start(
                flags=["--config", "TMP/short"],
                files={"short": SHORT_LEASE},
                code=2,
                says="TMP/short: lease.durationSeconds is 2.0: must be more than deadlineSeconds (10)",
            ),
            id="settings that contradict each other",
        ),
        pytest.param(
            Start(
                flags=["--store-directory", "TMP/file/below"],
                files={"file": ""},
                code=3,
                says="TMP/file/below cannot be made the directory of the embedded store (Not a directory):"
                " make it, or give another one",
            ),
            id="a place for the store that is none",
        ),
        pytest.param(
            Start(
                flags=["--store-directory", "TMP/store"],
                path="TMP",
                files={"redis-server": FULL_DISK},
                code=3,
                says="the embedded Redis in TMP/store ended at once (Server initialized; Write error writing"
                " append only file on disk: File too large): repair that directory or free space on its disk,"
                " or give the store another directory",
            ),
            id="a full disk under the embedded store",
        ),
        pytest.param(
            Start(
                flags=["--http-port", "99999"],
                code=2,
                says="argument --http-port: '99999' is not a port: expected -1 to 65535",
            ),
            id="a port that is none",
        ),
    ],
)
def test_a_controller_does_not_start_on(
    start: Start, embedded_cluster: Cluster, controllers: Controllers, tmp_path: Path, fill: Filling
) -> None:
    if "REDIS" in "".join(start.files.values()):
        parts.need("redis")
    for name, text in start.files.items():
        (tmp_path / name).write_text(fill(text))
        (tmp_path / name).chmod(0o700)

    refused = controllers.start(
        fill(start.kubeconfig) or embedded_cluster.kubeconfig,
        *map(fill, start.flags),
        environment={"PATH": f"{fill(start.path)}:{os.environ['PATH']}"} if start.path else {},
    )

    assert refused.wait_exit() == start.code
    assert refused.said().startswith(fill(start.says))


def test_a_misspelt_setting_is_named_and_the_controller_starts(
    embedded_cluster: Cluster, controllers: Controllers, own_namespace: str
) -> None:
    config = "apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\nlease: {durationSecond: 3}\n"

    started = controllers.start(embedded_cluster.kubeconfig, "--namespace", own_namespace, config=config)

    started.wait_logged("configuration", "lease.durationSecond", "did you mean durationSeconds?")
    started.wait_leading()


def test_a_row_whose_path_its_kind_has_not_is_named_and_jobs_are_admitted(
    embedded_cluster: Cluster, controllers: Controllers, own_namespace: str
) -> None:
    row, rest, made = EXTERNAL_SAMPLE.row, embedded_cluster.rest, definition(EXTERNAL_SAMPLE.row)
    (version,) = made["spec"]["versions"]
    spec = {"type": "object", "properties": {"head": {"type": "object"}}}
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    install_crds(rest, [made])
    scene = embedded_cluster.new_scene()
    scene.create_queue()
    scene.create_job("job")
    config = f"apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig{EXTERNAL}"

    started = controllers.start(embedded_cluster.kubeconfig, "--namespace", own_namespace, config=config)

    started.wait_logged("path-missing", f"{row.plural}.{row.group}/{row.version} has no spec.suspend")
    scene.wait_admitted("job")
    rest.delete(f"{CRDS}/{made['metadata']['name']}")


@pytest.mark.parametrize(
    ("user", "says"),
    [
        pytest.param(
            "stranger",
            "SERVER does not accept the credentials of TMP/kubeconfig (context 'test'): Unauthorized; renew"
            " them",
            id="a token that was never issued",
        ),
        pytest.param(
            "low",
            "SERVER does not let this user read or create the namespace berth-system (namespaces is"
            ' forbidden: User "low" cannot create resource "namespaces" in API group "" at the cluster'
            " scope); create it, and bind the roles of deploy/rbac.yaml to this user",
            id="a user without rights",
        ),
    ],
)
@pytest.mark.real
def test_a_real_server_refuses_a_controller_with(
    user: str, says: str, control_plane: ControlPlane, controllers: Controllers, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    token = {"stranger": "wrong", "low": control_plane.user_token}[user]
    text = Path(control_plane.user_kubeconfig).read_text()
    kubeconfig.write_text(text.replace(control_plane.user_token, token))

    refused = controllers.start(str(kubeconfig))

    assert refused.wait_exit() == 3
    assert refused.said() == Filling(TMP=str(tmp_path), SERVER=control_plane.server)(says)
