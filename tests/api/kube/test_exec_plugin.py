"""Logins by an exec plugin: what the program is told, what of its answer counts, and what it did wrong.

Source: kubernetes.io, "client-go credential plugins".
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from api.kube import exec_plugin
from api.kube.credentials import Credentials
from api.kube.errors import InvalidKubeconfig, Timeout
from api.kube.exec_plugin import ExecCredentials, read_exec_plugin
from api.kube.kubeconfig import find_endpoint

from .test_kubeconfig import write

V1 = "client.authentication.k8s.io/v1"


def answer(**status: str) -> dict[str, Any]:
    """Return what a plugin prints."""
    return {"apiVersion": V1, "kind": "ExecCredential", "status": status}


def plugin(folder: Path, program: str, **given: Any) -> dict[str, Any]:
    """Return the field `exec` of a plugin with this program, which appends a line to `calls` each time."""
    path = folder / "plugin.py"
    path.write_text(f"import json, os, sys\nopen({str(folder / 'calls')!r}, 'a').write('call\\n')\n{program}")
    return {"apiVersion": V1, "command": sys.executable, "args": ["-S", str(path)], **given}


def printing(folder: Path, printed: object, **given: Any) -> dict[str, Any]:
    """Return the field `exec` of a plugin that prints this."""
    return plugin(folder, f"print({json.dumps(printed)!r})", **given)


def credentials(folder: Path, given: Mapping[str, Any], **cluster: object) -> Credentials:
    """Return what the kubeconfig of a user with this plugin authenticates with."""
    path = write(folder / "config", user={"exec": given}, **cluster)  # type: ignore[arg-type]
    return find_endpoint(path, environment={}).credentials


def calls(folder: Path) -> int:
    return (folder / "calls").read_text().count("call")


async def test_the_plugin_gives_the_token(tmp_path: Path) -> None:
    found = credentials(tmp_path, printing(tmp_path, answer(token="from-plugin")))

    assert await found.authorization() == "Bearer from-plugin"


async def test_a_token_is_kept_for_all_requests_at_once(tmp_path: Path) -> None:
    found = credentials(tmp_path, printing(tmp_path, answer(token="t")))

    assert await asyncio.gather(*(found.authorization() for _ in range(3))) == ["Bearer t"] * 3
    assert calls(tmp_path) == 1


async def test_a_rejected_token_is_asked_for_again(tmp_path: Path) -> None:
    found = credentials(tmp_path, printing(tmp_path, answer(token="t")))
    await found.authorization()

    found.invalidate()
    await found.authorization()

    assert calls(tmp_path) == 2


async def test_a_token_is_asked_for_again_once_it_has_expired(tmp_path: Path) -> None:
    now = 1_790_000_000.0
    given = printing(tmp_path, answer(token="t", expirationTimestamp="2026-09-21T14:13:30Z"))
    read = read_exec_plugin(given, origin="user 'me'", folder=tmp_path, cluster={})
    found = ExecCredentials(read, "user 'me'", None, clock=lambda: now)

    await found.authorization()
    now += 9
    await found.authorization()
    before = calls(tmp_path)
    now += 1
    await found.authorization()

    assert (before, calls(tmp_path)) == (1, 2)


async def test_the_plugin_is_given_its_variables_and_the_address_of_the_cluster(tmp_path: Path) -> None:
    told = "json.loads(os.environ['KUBERNETES_EXEC_INFO'])"
    program = (
        f"token = json.dumps([{told}['spec'], os.environ['REGION']])\n"
        f"print(json.dumps({{**{told}, 'status': {{'token': token}}}}))"
    )
    given = plugin(
        tmp_path,
        program,
        env=[{"name": "REGION", "value": "eu"}],
        provideClusterInfo=True,
        interactiveMode="Never",
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}

    header = await credentials(tmp_path, given, extensions=[extension]).authorization()

    assert header is not None
    assert json.loads(header.removeprefix("Bearer ")) == [
        {"interactive": False, "cluster": {"server": "http://host:1", "config": {"audience": "a"}}},
        "eu",
    ]


async def test_a_command_with_a_folder_is_beside_the_kubeconfig(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "login"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{json.dumps(answer(token='t'))}'\n")
    program.chmod(0o700)

    found = credentials(tmp_path, {"apiVersion": V1, "command": "bin/login"})

    assert await found.authorization() == "Bearer t"


@pytest.mark.parametrize(
    ("program", "want_message"),
    [
        pytest.param(
            "sys.exit('your session\\nis over')", r"exited with 1: your session is over; brew it", id="fails"
        ),
        pytest.param("print('hello')", "printed no ExecCredential: .*; brew it", id="prints no JSON"),
        pytest.param("print(b'\\xff')", "printed no ExecCredential", id="prints what is no text"),
        pytest.param(f"print('{json.dumps(answer())}')", "neither a token nor a client", id="gives nothing"),
        pytest.param(
            f"print('{json.dumps(answer(clientCertificateData='c'))}')",
            "neither a token nor a client certificate with its key",
            id="gives a certificate without its key",
        ),
        pytest.param(
            f"print('{json.dumps({**answer(token='t'), 'apiVersion': 'v9'})}')",
            "printed ExecCredential of v9; expected ExecCredential of client.authentication.k8s.io/v1",
            id="answers by another version",
        ),
        pytest.param(
            f"print('{json.dumps(answer(token='t', expirationTimestamp='soon'))}')",
            "'soon' is no RFC 3339 time",
            id="gives an expiration that is no time",
        ),
    ],
)
async def test_a_plugin_that(tmp_path: Path, program: str, want_message: str) -> None:
    found = credentials(tmp_path, plugin(tmp_path, program, installHint="brew it"))

    with pytest.raises(InvalidKubeconfig, match=f"login of .*config .*failed: .*{want_message}"):
        await found.authorization()


async def test_a_plugin_that_is_not_installed_is_named_with_its_hint(tmp_path: Path) -> None:
    given = {"apiVersion": V1, "command": "no-such-login", "installHint": "install it\nfrom example.com"}

    with pytest.raises(
        InvalidKubeconfig, match=r"no-such-login: No such file.*; install it from example.com"
    ):
        await credentials(tmp_path, given).authorization()


@pytest.mark.parametrize(
    ("given", "want_message"),
    [
        pytest.param({"command": "login"}, "exec of user 'me' .*`apiVersion`", id="no version"),
        pytest.param({"apiVersion": V1}, "exec of user 'me' .*`command`", id="no command"),
        pytest.param(
            {"apiVersion": f"{V1}alpha1", "command": "login"},
            "v1alpha1'; expected client.authentication.k8s.io/v1 or client",
            id="a version of the past",
        ),
        pytest.param({"apiVersion": V1, "command": "a", "args": 3}, r"Expected `array.*args`", id="no list"),
        pytest.param("login", "exec of user 'me' .*Expected `object`", id="a text alone"),
    ],
)
def test_an_entry_that_cannot_be_used(tmp_path: Path, given: Any, want_message: str) -> None:
    with pytest.raises(InvalidKubeconfig, match=want_message):
        credentials(tmp_path, given)


def test_a_plugin_that_must_ask_a_person_needs_a_terminal(tmp_path: Path) -> None:
    given = {"apiVersion": V1, "command": "login", "interactiveMode": "Always"}

    with pytest.raises(InvalidKubeconfig, match="standard input is no terminal"):
        read_exec_plugin(given, origin="user 'me'", folder=tmp_path, cluster={}, is_terminal=False)
    assert read_exec_plugin(
        given, origin="user 'me'", folder=tmp_path, cluster={}, is_terminal=True
    ).is_interactive


async def test_a_plugin_that_gives_no_answer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "PLUGIN_TIMEOUT_SECONDS", 0.01)
    given = plugin(tmp_path, "import time; time.sleep(600)", interactiveMode="Never")

    with pytest.raises(Timeout, match="gave no answer"):
        await credentials(tmp_path, given).authorization()
