"""Static addresses: what a pod asks for, the pool that a node offers, and which address each pod has.

    Job or pod template   berth.dev/static-address: "true"                         one address for each pod
    Node                  berth.dev/addresses: 10.0.3.16-10.0.3.31,10.0.3.40       its pool
    Workload              berth.dev/addresses: {"main": ["10.0.3.16"]}             by pod set, then by pod
    pod                   berth.dev/address: 10.0.3.16                             its own

Nodes with the same text share one pool, such as the nodes of a rack. The network plugin gives the pod the
address: it reads Berth's key, or its own key, which is written as well where the pod asks by its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import msgspec

from api import keys

Reservations = Mapping[str, tuple[str, ...]]
"""The addresses of a Workload's pods: by pod set, and within it by the index of the pod."""
_Address = IPv4Address | IPv6Address

CHOICES = ("true", "calico", "kube-ovn")
"""What a pod may ask with: for an address alone, or under the key of this network plugin as well."""
# Caps the addresses of one pool at those of a /16: a mistaken range must not create a huge list.
_MOST_ADDRESSES = 1 << 16
_RESERVATIONS = msgspec.json.Decoder(dict[str, tuple[str, ...]])
_NONE: Reservations = {}


def asks_for_address(sources: Sequence[Mapping[str, str] | None]) -> bool:
    """Return whether a pod asks for an address. The first source that has the key decides about it."""
    text = next((text for source in sources if source and (text := source.get(keys.STATIC_ADDRESS))), "")
    return text.lower() in CHOICES


def pod_annotations(address: str, choice: str) -> dict[str, str]:
    """Return the annotations that give a pod its address; `choice` is what the pod asks with."""
    written = {keys.ADDRESS: address}
    if choice.lower() == "calico":
        written["cni.projectcalico.org/ipAddrs"] = json.dumps([address])
    elif choice.lower() == "kube-ovn":
        written["ovn.kubernetes.io/ip_address"] = address
    return written


def parse_pool(text: str) -> tuple[str, ...]:
    """Return the addresses of a node's pool, each once, in their order.

    Parts are separated by commas: an address, a range from the first to the last, or a block such as
    10.0.3.16/28. Raises ValueError, which names the part that cannot be read.
    """
    found: dict[_Address, None] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        found.update(dict.fromkeys(_addresses(part, _MOST_ADDRESSES - len(found))))
    return tuple(str(one) for one in sorted(found, key=lambda one: (one.version, int(one))))


def _addresses(part: str, most: int) -> Sequence[_Address]:
    try:
        if "/" in part:
            block = ip_network(part)
            first, last = block[0], block[-1]
        else:
            begin, dash, end = part.partition("-")
            first = ip_address(begin.strip())
            last = ip_address(end.strip()) if dash else first
    except ValueError as error:
        raise ValueError(f"{part!r} is no address, range or block") from error
    count = int(last) - int(first) + 1
    if first.version != last.version or count < 1:
        raise ValueError(f"{part!r} is no range: its end comes before its begin")
    if count > most:
        raise ValueError(f"{part!r} makes more than {_MOST_ADDRESSES} addresses")
    return [first + offset for offset in range(count)]


def parse_reservations(text: str | None) -> Reservations:
    """Return the addresses that a Workload's annotation reserves; none for a text that cannot be read.

    The controller alone writes it: an unreadable one was edited by hand, and its pods get other addresses.
    """
    if not text:
        return _NONE
    try:
        return _RESERVATIONS.decode(text)
    except msgspec.DecodeError:
        return _NONE


def reservations_text(reservations: Reservations) -> str:
    """Return the annotation's value."""
    return json.dumps({name: list(reserved) for name, reserved in sorted(reservations.items())})
