"""The front proxy: the authority whose certificate kube-apiserver shows when it forwards a request.

The cluster publishes it in a ConfigMap, and replaces it there when it is renewed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from admission.controller.http.client_authority import ClientAuthority
from admission.controller.runtime.logs import Log
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound

log = Log("berth.visibility")

_CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


async def find_front_proxy(client: KubeClient) -> ClientAuthority | None:
    """Return what the cluster publishes about its front proxy.

    None if it publishes nothing usable, which is logged, or if we may not read it. Raises KubeError if the
    API server does not answer.
    """
    try:
        return await read_front_proxy(client)
    except ValueError as error:
        log.warning("front-proxy-unreadable", error=error)
        return None


async def read_front_proxy(client: KubeClient) -> ClientAuthority | None:
    """Return the same. Raises ValueError where it cannot be used."""
    namespace, name = _CONFIG_MAP
    try:
        raw = await client.get(resources.CONFIG_MAPS, name, namespace)
    # Neither is an error: the port then serves only loopback.
    except (Forbidden, NotFound):
        return None
    data = msgspec.json.decode(raw, type=_ConfigMap).data or {}
    authority = data.get("requestheader-client-ca-file", "").strip()
    if not authority:
        return None
    try:
        proxy = ClientAuthority(authority=authority, allowed_names=_names(data))
        proxy.check()
    # Errors of msgspec are ValueErrors, too.
    except ValueError as error:
        raise ValueError(f"ConfigMap {namespace}/{name}: {error}") from error
    return proxy


def _names(data: Mapping[str, str]) -> tuple[str, ...]:
    text = data.get("requestheader-allowed-names") or "[]"
    return msgspec.json.decode(text, type=tuple[str, ...])
