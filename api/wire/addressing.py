"""Which requests to a port of this machine a browser sends for another site.

A plain port on loopback is open to all of this machine, and so to a browser there, which asks for any site
that it shows. Such a site can have its own name lead to 127.0.0.1 and then read what it asks for (DNS
rebinding: the request has that name as its Host). Without that it can send a form (its Origin is the site) or
a link (Sec-Fetch-Site), and cannot read the answer. A browser writes these three headers itself: a page
cannot change them.

A client that is no browser sends neither Origin nor Sec-Fetch-Site, and asks for the address that it was
given. One that sends no Host either, such as a health check in HTTP/1.0, is none: every browser sends it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

# What browsers say of requests by a page of the same server, and by a person who enters the address.
_OWN_SITES = frozenset({"same-origin", "none"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    # A host name: only localhost is certain.
    except ValueError:
        return host == "localhost"


def refusal(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return status and sentence for a request to a plain port on loopback, None if it is for this server.

    `headers` are found by name in any case.
    """
    host = headers.get("Host")
    if host is not None and not is_loopback(_name(host)):
        return 421, (
            f"this port answers at 127.0.0.1 and localhost, and not at {host!r};"
            " have a proxy send one of them as Host"
        )
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return 403, f"pages of {origin} may not use this port"
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in _OWN_SITES:
        return 403, f"pages of other sites ({site}) may not use this port; enter the address itself"
    return None


def _name(host: str) -> str:
    """Return the host without its port: `127.0.0.1:80`, `localhost`, `[::1]:80`."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if port[:1] in ("", ":") else host
    # A dot at the end says that the name is whole.
    return host.partition(":")[0].lower().removesuffix(".")
