"""Finds the API server and the credentials: kubeconfig files and the in-cluster service account.

These are read here instead of by kubernetes_asyncio, whose import takes 0.6 s and 40 MB: tokens, token files,
client certificates, passwords, exec plugins, the service account. Only `auth-provider` (OIDC, GCP) uses the
library (credentials.py). Every fault is reported as one sentence that names the file and the fix.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from api.kube.client_certificate import load_client_certificate
from api.kube.client_tls import ClientTls
from api.kube.credentials import Credentials, FixedCredentials, TokenFile, library_credentials
from api.kube.errors import InvalidKubeconfig
from api.kube.exec_plugin import ExecCredentials, read_exec_plugin

_TOLD_OF_CLUSTER = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything that a client needs to reach one API server.

    `origin` names the source of this configuration in messages. `headers` are sent with every request (for
    impersonation). `server` has no trailing slash and may have a path. `namespace` is that of the context or
    of the pod, None where there is none.
    """

    server: str
    origin: str
    credentials: Credentials
    tls: ClientTls | None = None
    server_hostname: str | None = None
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str | None = None


def find_endpoint(
    kubeconfig: str | None = None,
    *,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Endpoint:
    """Return the endpoint of `kubeconfig`, else of $KUBECONFIG, else in-cluster, else of ~/.kube/config.

    $KUBECONFIG may list several files, which are merged as in kubectl: the first definition of an entry is
    used. `context` replaces the files' current one. `environment` replaces the process environment in tests.
    Raises InvalidKubeconfig.
    """
    environment = os.environ if environment is None else environment
    if kubeconfig:
        return endpoint_of_files([Path(kubeconfig).expanduser()], environment=environment, context=context)
    if listed := environment.get("KUBECONFIG"):
        paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
        # Like kubectl, ignores files of the list that do not exist, unless none exists.
        existing = [path for path in paths if path.exists()]
        return endpoint_of_files(existing or paths, environment=environment, context=context)
    if environment.get("KUBERNETES_SERVICE_HOST") and context is None:
        return _endpoint_in_cluster(environment, service_account)
    home = [Path("~/.kube/config").expanduser()]
    return endpoint_of_files(home, environment=environment, context=context)


def endpoint_of_files(
    paths: Sequence[Path], *, environment: Mapping[str, str], context: str | None = None
) -> Endpoint:
    """Return the endpoint that a context of these merged files describes: `context`, else the current one.

    Raises InvalidKubeconfig. `environment` is asked for proxies only. Files are merged as kubectl does: the
    first definition of a name counts.
    """
    config = _Kubeconfig(paths)
    chosen = config.context(context)
    cluster = config.entry("cluster", chosen.text("cluster"), chosen)
    user_name = chosen.text("user")
    user = config.entry("user", user_name, chosen) if user_name else _Entry("user", "", chosen.file, {})
    server = _server_of(cluster)
    proxy = _proxy(server, cluster, environment)
    # Without TLS there is no context, even if the user has a certificate. As in client-go, server and proxy
    # share one.
    has_tls = any(url.startswith("https:") for url in (server, proxy or ""))
    tls = _client_tls(cluster, user) if has_tls else None
    origin = f"{chosen.file} (context {chosen.name!r})"
    return Endpoint(
        server=server,
        origin=origin,
        credentials=_credentials(config, chosen, (cluster, user), origin, tls),
        tls=tls,
        server_hostname=cluster.text("tls-server-name"),
        proxy=proxy,
        headers=_impersonation(user),
        namespace=chosen.text("namespace"),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One named cluster, user or context, and its file, which relative paths are resolved against."""

    word: str
    name: str
    file: Path
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.word} {self.name!r} in {self.file}"

    def text(self, key: str) -> str | None:
        """Return a text field, None where it is absent or empty."""
        value = self.fields.get(key)
        # Some tools write an empty string for an unset value.
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise InvalidKubeconfig(f"{key} of {self} is {value!r}; it must be text")
        return value

    def path(self, key: str) -> Path | None:
        """Return a field that names a file, relative to the file that it stands in."""
        value = self.text(key)
        # Relative paths are resolved against the directory of their file, so that a kubeconfig works
        # from any working directory.
        return self.file.parent / Path(value).expanduser() if value else None

    def content(self, key: str) -> bytes | None:
        """Return the decoded value of `<key>-data`, else the content of the file that `<key>` names."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise InvalidKubeconfig(f"{key}-data of {self} is not base64: {error}") from error
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise InvalidKubeconfig(f"{key} of {self} cannot be read: {error}") from error


class _Kubeconfig:
    """Merged kubeconfig files: the first definition of a cluster, user or context is used."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._current = ""
        for path in paths:
            self._merge(path, _read(path))

    def context(self, name: str | None) -> _Entry:
        """Return the context of this name, by default the one that the files choose."""
        files = ", ".join(map(str, self._paths))
        known = ", ".join(sorted(name for word, name in self._entries if word == "context"))
        if not known:
            raise InvalidKubeconfig(f"{files} has no contexts; give a kubeconfig of a cluster")
        name = name or self._current
        if not name:
            raise InvalidKubeconfig(f"{files} sets no current-context; choose one of: {known}")
        if ("context", name) not in self._entries:
            raise InvalidKubeconfig(f"{files} has no context {name!r}; it has: {known}")
        return self._entries["context", name]

    def entry(self, word: str, name: str | None, context: _Entry) -> _Entry:
        """Return the cluster or user that a context names."""
        if not name:
            raise InvalidKubeconfig(f"{context} names no {word}; add one")
        if (word, name) not in self._entries:
            raise InvalidKubeconfig(f"{context} names the {word} {name!r}, which is not there; add it")
        return self._entries[word, name]

    def as_single(self, context: _Entry, user: _Entry) -> dict[str, Any]:
        """Return a kubeconfig with only the chosen context, for the library."""
        cluster = self.entry("cluster", context.text("cluster"), context)
        chosen = (context, cluster, user)
        lists = {f"{e.word}s": [{"name": e.name, e.word: dict(e.fields)}] for e in chosen}
        return {"current-context": context.name, **lists}

    def _merge(self, path: Path, config: Mapping[str, Any]) -> None:
        """Add the entries of one file that no earlier file defines."""
        self._current = self._current or str(config.get("current-context") or "")
        for word in ("cluster", "user", "context"):
            for item in _items(config.get(f"{word}s"), f"{word}s", path):
                fields = item.get(word)
                entry = _Entry(word, str(item.get("name")), path, fields if isinstance(fields, dict) else {})
                # As in kubectl, the first definition is used: a later file cannot redirect a cluster that
                # an earlier one defines.
                self._entries.setdefault((word, entry.name), entry)


def _items(value: object, key: str, path: Path) -> Sequence[Mapping[str, Any]]:
    """Return a list of named entries, empty where the key is absent."""
    items = value or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidKubeconfig(f"{key} in {path} is not a list of named entries; correct the file")
    return items


def _read(path: Path) -> Mapping[str, Any]:
    """Return the content of one kubeconfig file."""
    try:
        config = yaml.safe_load(path.read_bytes())
    except FileNotFoundError as error:
        raise InvalidKubeconfig(
            f"the kubeconfig {path} does not exist; name one with --kubeconfig or $KUBECONFIG"
        ) from error
    except OSError as error:
        raise InvalidKubeconfig(f"the kubeconfig {path} cannot be read: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidKubeconfig(
            f"the kubeconfig {path} is not YAML: {' '.join(str(error).split())}"
        ) from error
    if config is None:
        raise InvalidKubeconfig(f"the kubeconfig {path} is empty; write a cluster and a context into it")
    if not isinstance(config, dict):
        raise InvalidKubeconfig(f"{path} is no kubeconfig: it holds a {type(config).__name__}, not a mapping")
    return config


def _server_of(cluster: _Entry) -> str:
    """Return the URL of the cluster's server, without a slash at the end."""
    server = (cluster.text("server") or "").rstrip("/")
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidKubeconfig(
            f"server of {cluster} is {server!r}; it must be a URL such as https://host:6443"
        )
    return server


def _client_tls(cluster: _Entry, user: _Entry) -> ClientTls:
    """Return the TLS of a cluster and a user, with the files that they name."""
    named = (
        (cluster, "certificate-authority"),
        (user, "client-certificate"),
        (user, "client-key"),
    )
    # What stands in the kubeconfig itself comes before a file, as in `_Entry.content`.
    files = [entry.path(key) for entry, key in named if not entry.text(f"{key}-data")]
    make = partial(_ssl_context, cluster, user)
    return ClientTls(make, [file for file in files if file is not None])


def _ssl_context(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    """Return the TLS context: the CA of the cluster and the client certificate of the user."""
    authority = cluster.content("certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidKubeconfig(
            f"certificate-authority of {cluster} is no PEM certificate: {error}"
        ) from error
    # Python 3.13 enforces RFC 5280 strictly; the CAs of many clusters lack the key
    # identifiers that it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.fields.get("insecure-skip-tls-verify"):
        # In this order, because ssl rejects CERT_NONE while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, user)
    return context


def _load_client_certificate(context: ssl.SSLContext, user: _Entry) -> None:
    """Load the user's client certificate, if there is one."""
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise InvalidKubeconfig(f"{user} has only one of client-certificate and client-key; it needs both")
    load_client_certificate(context, certificate, key, str(user))


def _credentials(
    config: _Kubeconfig,
    chosen: _Entry,
    pair: tuple[_Entry, _Entry],
    origin: str,
    tls: ClientTls | None,
) -> Credentials:
    """Return how requests of the user of this cluster are authorised."""
    cluster, user = pair
    if given := user.fields.get("exec"):
        plugin = read_exec_plugin(given, origin=str(user), folder=user.file.parent, cluster=_told(cluster))
        return ExecCredentials(plugin, origin, tls)
    if user.fields.get("auth-provider"):
        return library_credentials(config.as_single(chosen, user), chosen.name, origin)
    # Checked before the token: if an entry has both, client-go also reads the file, because the token is only
    # a copy from the time when the kubeconfig was written.
    if path := user.path("tokenFile"):
        return TokenFile(path, origin)
    if token := user.text("token"):
        return FixedCredentials(f"Bearer {token.strip()}")
    if name := user.text("username"):
        basic = f"{name}:{user.text('password') or ''}".encode()
        return FixedCredentials(f"Basic {base64.b64encode(basic).decode()}")
    return FixedCredentials()


def _told(cluster: _Entry) -> Mapping[str, Any]:
    """Return what an exec plugin may be told of the cluster: ExecCredential's `spec.cluster`."""
    told = {key: cluster.fields[key] for key in _TOLD_OF_CLUSTER if key in cluster.fields}
    if authority := cluster.content("certificate-authority"):
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    extensions = _items(cluster.fields.get("extensions"), "extensions", cluster.file)
    for one in extensions:
        if one.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = one.get("extension")
    return told


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    """Return the headers by which the user acts as another one."""
    name = user.text("as")
    if not name:
        return ()
    groups = user.fields.get("as-groups") or []
    return ("Impersonate-User", name), *(("Impersonate-Group", str(group)) for group in groups)


def _proxy(server: str, cluster: _Entry, environment: Mapping[str, str]) -> str | None:
    """Return the proxy for the server, None for a direct connection."""
    proxy = cluster.text("proxy-url") or _environment_proxy(server, environment)
    if proxy and not proxy.startswith(("http://", "https://")):
        raise InvalidKubeconfig(f"the proxy {proxy!r} for {cluster} is not supported; give an http:// one")
    return proxy


def _environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment sets for this server, by the rules of curl and client-go.

    Else None.
    """
    # Both curl and Go accept upper-case and lower-case names.
    lower = {key.lower(): value for key, value in environment.items() if value}
    parts = urlsplit(server)
    proxy = lower.get(f"{parts.scheme}_proxy")
    # The standard library uses a proxy for loopback unless no_proxy excludes it; client-go never does.
    if not proxy or parts.hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    bypass = urllib.request.proxy_bypass_environment(parts.netloc, {"no": lower.get("no_proxy", "")})  # type: ignore[attr-defined] # typeshed lacks it
    return None if bypass else proxy


def _endpoint_in_cluster(environment: Mapping[str, str], service_account: Path) -> Endpoint:
    """Return the endpoint that Kubernetes gives every pod."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    origin = f"the service account in {service_account}"
    authority = service_account / "ca.crt"
    return Endpoint(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        origin=origin,
        credentials=TokenFile(service_account / "token", origin),
        tls=ClientTls(partial(_context_in_cluster, authority), [authority]),
        namespace=_own_namespace(service_account / "namespace"),
    )


def _context_in_cluster(authority: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidKubeconfig(
            f"$KUBERNETES_SERVICE_HOST is set but {authority} cannot be used: {error}; mount the service"
            " account's token, or name a kubeconfig with --kubeconfig"
        ) from error
    # As for kubeconfigs above: the CAs of many clusters lack the key identifiers.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _own_namespace(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
