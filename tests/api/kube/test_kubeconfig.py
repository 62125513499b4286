"""Parsing of kubeconfigs: supported fields, and one sentence for each fault."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
import yaml

from api.kube.credentials import REFRESH_SECONDS, TokenFile
from api.kube.errors import InvalidKubeconfig
from api.kube.kubeconfig import Endpoint, find_endpoint

from .scripted import write_kubeconfig


def write(path: Path, *, server: str = "http://host:1", user: object = None, **cluster: object) -> str:
    """Write a kubeconfig with one context `main`."""
    config = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def authorization(endpoint: Endpoint) -> str | None:
    return await endpoint.credentials.authorization()


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        pytest.param("", "is empty; write a cluster and a context into it", id="an empty file"),
        pytest.param("a: [1", "is not YAML: while parsing", id="broken YAML"),
        pytest.param("\x00", "is not YAML", id="no text at all"),
        pytest.param("- 1", "is no kubeconfig: it holds a list", id="YAML of another thing"),
        pytest.param("clusters: 3", "clusters in .* is not a list", id="a list that is none"),
        pytest.param("users: [3]", "users in .* is not a list of named entries", id="entries without names"),
        pytest.param("a: b", "has no contexts; give a kubeconfig of a cluster", id="no context there"),
        pytest.param(
            "contexts: [{name: y}]", "sets no current-context; choose one of: y", id="no context chosen"
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: y}]}",
            "has no context 'x'; it has: y",
            id="unknown context",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x}]}", "names no cluster; add one", id="no cluster named"
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            "names the cluster 'c', which is not there",
            id="unknown cluster",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],"
            " clusters: [{name: c, cluster: {server: 'http://h'}}]}",
            "names the user 'u', which is not there",
            id="unknown user",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, want_message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(InvalidKubeconfig, match=want_message) as caught:
        find_endpoint(str(path), environment={})

    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("cluster", "user", "want_message"),
    [
        pytest.param({"server": "host:6443"}, {}, "must be a URL such as https://host:6443", id="no URL"),
        pytest.param({"server": 7}, {}, "server of cluster 'here' .* is 7; it must be text", id="a number"),
        pytest.param(
            {"certificate-authority": "gone.pem"},
            {},
            "certificate-authority of cluster.*gone.pem",
            id="no CA file",
        ),
        pytest.param({"certificate-authority-data": "%"}, {}, "is not base64", id="CA data is no base64"),
        pytest.param(
            {"certificate-authority-data": base64.b64encode(b"x").decode()},
            {},
            "is no PEM",
            id="CA is no PEM",
        ),
        pytest.param({}, {"client-key-data": "YQ=="}, "needs both", id="a key without a certificate"),
        pytest.param(
            {},
            {"client-key-data": "YQ==", "client-certificate-data": "YQ=="},
            "client certificate of user 'me'.*cannot be used",
            id="a client certificate that is none",
        ),
        pytest.param({"proxy-url": "socks5://p"}, {}, "is not supported; give an http:// one", id="SOCKS"),
    ],
)
def test_a_setting_that_cannot_be_used(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, str], want_message: str
) -> None:
    settings = {"server": "https://host", **cluster}

    with pytest.raises(InvalidKubeconfig, match=want_message):
        find_endpoint(write(tmp_path / "config", user=user, **settings), environment={})


def test_a_missing_file_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(InvalidKubeconfig, match=r"gone does not exist; name one with --kubeconfig or"):
        find_endpoint(str(tmp_path / "gone"), environment={})


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(InvalidKubeconfig, match="cannot be read"):
        find_endpoint(str(tmp_path), environment={})


@pytest.mark.parametrize(
    ("user", "want_header"),
    [
        pytest.param({}, None, id="no user"),
        pytest.param({"token": "abc\n"}, "Bearer abc", id="a token"),
        pytest.param({"tokenFile": "t", "token": "old"}, "Bearer from-file", id="a token file goes first"),
        pytest.param({"username": "u", "password": "p"}, "Basic dTpw", id="a password"),
    ],
)
async def test_the_credentials_of_a_request(
    tmp_path: Path, user: dict[str, str], want_header: str | None
) -> None:
    (tmp_path / "t").write_text("from-file\n")

    endpoint = find_endpoint(write(tmp_path / "config", user=user), environment={})

    assert await authorization(endpoint) == want_header


def test_a_login_without_the_package_for_it_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {}}}
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.config.kube_config", None)

    with pytest.raises(InvalidKubeconfig, match=r"pip install 'berth-queue\[login\]'"):
        find_endpoint(write(tmp_path / "config", user=user), environment={})


async def test_an_identity_provider_gives_the_token(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(b'{"exp": 99999999999}').decode()
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"head.{claims}.signature"}}}

    endpoint = find_endpoint(write(tmp_path / "config", user=user), environment={})

    assert await authorization(endpoint) == f"Bearer head.{claims}.signature"


def test_impersonation_is_sent_with_each_request(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"]}

    endpoint = find_endpoint(write(tmp_path / "config", user=user), environment={})

    assert endpoint.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
    )


def test_the_path_of_a_server_behind_a_gateway_is_kept(tmp_path: Path) -> None:
    endpoint = find_endpoint(write(tmp_path / "config", server="http://gate/k8s/c-1/"), environment={})

    assert endpoint.server == "http://gate/k8s/c-1"


@pytest.mark.parametrize(
    ("environment", "want_proxy"),
    [
        pytest.param({}, None, id="none set"),
        pytest.param({"HTTP_PROXY": "http://p:8"}, "http://p:8", id="set for http"),
        pytest.param({"https_proxy": "http://p:8"}, None, id="set for https only"),
        pytest.param({"HTTP_PROXY": "http://p:8", "NO_PROXY": "other,host"}, None, id="excepted"),
    ],
)
def test_the_environments_proxy(tmp_path: Path, environment: dict[str, str], want_proxy: str | None) -> None:
    assert find_endpoint(write(tmp_path / "config"), environment=environment).proxy == want_proxy


@pytest.mark.parametrize(
    ("proxy", "want_tls"),
    [pytest.param("http://p:8", False, id="without TLS"), pytest.param("https://p:8", True, id="with TLS")],
)
def test_a_proxy_is_verified_by_the_clusters_authorities(tmp_path: Path, proxy: str, want_tls: bool) -> None:
    """As client-go does, where the server itself has no TLS."""
    kubeconfig = write(tmp_path / "config", **{"proxy-url": proxy})

    assert (find_endpoint(kubeconfig, environment={}).tls is not None) is want_tls


def test_loopback_is_never_reached_through_a_proxy(tmp_path: Path) -> None:
    kubeconfig = write(tmp_path / "config", server="http://127.0.0.1:1")

    assert find_endpoint(kubeconfig, environment={"HTTP_PROXY": "http://p:8"}).proxy is None


def test_of_several_files_the_first_to_name_a_thing_wins(tmp_path: Path) -> None:
    """kubectl, "Organizing Cluster Access Using kubeconfig Files": the rules of merging."""
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, server="http://first")
    write(second, server="http://second")
    listed = f"{tmp_path / 'absent'}:{first}:{second}"

    assert find_endpoint(environment={"KUBECONFIG": listed}).server == "http://first"


def test_the_current_context_may_be_of_any_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("{current-context: b}")
    second.write_text(
        "{contexts: [{name: b, context: {cluster: c}}], clusters: [{name: c, cluster: {server: 'http://b'}}]}"
    )

    endpoint = find_endpoint(environment={"KUBECONFIG": f"{first}:{second}"})

    assert (endpoint.server, endpoint.origin) == ("http://b", f"{second} (context 'b')")


def test_a_kubeconfig_named_goes_before_the_cluster_we_run_in(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://named:1")

    assert find_endpoint(path, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).server == "http://named:1"


def test_in_a_cluster_without_a_mounted_token_the_error_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(InvalidKubeconfig, match="mount the service account's token, or name a kubeconfig"):
        find_endpoint(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)


async def test_a_token_file_is_read_again_each_minute(tmp_path: Path) -> None:
    now = 0.0
    token = tmp_path / "token"
    credentials = TokenFile(token, "the test", clock=lambda: now)
    token.write_text("first")
    before = await credentials.authorization()

    token.write_text("second")
    within = await credentials.authorization()
    now = REFRESH_SECONDS
    after = await credentials.authorization()

    assert (before, within, after) == ("Bearer first", "Bearer first", "Bearer second")


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    credentials = TokenFile(token, "the test", clock=lambda: 0.0)
    await credentials.authorization()

    token.write_text("second")
    credentials.invalidate()

    assert await credentials.authorization() == "Bearer second"


@pytest.mark.parametrize(
    ("content", "want_message"),
    [
        pytest.param(b"", "is empty; put a token into it", id="an empty file"),
        pytest.param(b"\xff", "cannot be read", id="bytes that are no text"),
        pytest.param(None, "cannot be read", id="no file"),
    ],
)
async def test_a_token_file_that_cannot_be_used(
    tmp_path: Path, content: bytes | None, want_message: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)

    with pytest.raises(InvalidKubeconfig, match=f"token file {token} of the test {want_message}"):
        await TokenFile(token, "the test").authorization()
