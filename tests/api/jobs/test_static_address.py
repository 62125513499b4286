"""Static addresses as texts: pools of nodes, reservations of Workloads, and what is written on pods."""

from __future__ import annotations

import pytest

from api.jobs.static_address import (
    asks_for_address,
    parse_pool,
    parse_reservations,
    pod_annotations,
    reservations_text,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("10.0.0.9", ("10.0.0.9",), id="an address"),
        pytest.param("10.0.0.9-10.0.0.11", ("10.0.0.9", "10.0.0.10", "10.0.0.11"), id="a range, by number"),
        pytest.param("10.0.0.4/31", ("10.0.0.4", "10.0.0.5"), id="a block"),
        pytest.param("fd00::2, fd00::1", ("fd00::1", "fd00::2"), id="addresses of IPv6, in order"),
        pytest.param("10.0.0.1,10.0.0.1-10.0.0.2,", ("10.0.0.1", "10.0.0.2"), id="an address twice"),
    ],
)
def test_a_pool_is(text: str, want: tuple[str, ...]) -> None:
    assert parse_pool(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("10.0.0.300", "'10.0.0.300' is no address, range or block", id="an octet above 255"),
        pytest.param("10.0.0.1-", "'10.0.0.1-' is no address, range or block", id="a range without end"),
        pytest.param(
            "10.0.0.1/24", "'10.0.0.1/24' is no address, range or block", id="a host bit in a block"
        ),
        pytest.param("10.0.0.2-10.0.0.1", "its end comes before its begin", id="a range backwards"),
        pytest.param("10.0.0.1-fd00::1", "its end comes before its begin", id="a range across versions"),
        pytest.param("fd00::/64", "makes more than 65536 addresses", id="too many addresses"),
        pytest.param("10.0.0.0/16,10.1.0.0", "makes more than 65536 addresses", id="too many in all"),
    ],
)
def test_a_pool_cannot_be_read_with(text: str, want: str) -> None:
    with pytest.raises(ValueError, match=want.replace(".", r"\.")):
        parse_pool(text)


def test_reservations_are_read_as_they_are_written() -> None:
    reservations = {"workers": ("10.0.0.2", "10.0.0.1"), "leader": ("10.0.0.3",)}

    assert parse_reservations(reservations_text(reservations)) == reservations


@pytest.mark.parametrize("text", [None, "", "[1]", '{"main": "10.0.0.1"}', "{"])
def test_an_unreadable_annotation_reserves_nothing(text: str | None) -> None:
    assert parse_reservations(text) == {}


@pytest.mark.parametrize(
    ("sources", "want"),
    [
        pytest.param(({"berth.dev/static-address": "True"},), True, id="whatever the case"),
        pytest.param(({"berth.dev/static-address": "calico"},), True, id="by a network plugin"),
        pytest.param((None, {"berth.dev/static-address": "true"}), True, id="on its Job"),
        pytest.param(
            ({"berth.dev/static-address": "false"}, {"berth.dev/static-address": "true"}),
            False,
            id="the pod says no, its Job yes",
        ),
        pytest.param(({"berth.dev/static-address": "10.0.0.1"},), False, id="another value"),
        pytest.param((None, {}), False, id="no key"),
    ],
)
def test_a_pod_asks_for_an_address(sources: tuple[dict[str, str] | None, ...], want: bool) -> None:
    assert asks_for_address(sources) is want


@pytest.mark.parametrize(
    ("choice", "want"),
    [
        ("true", {}),
        ("Calico", {"cni.projectcalico.org/ipAddrs": '["10.0.0.1"]'}),
        ("kube-ovn", {"ovn.kubernetes.io/ip_address": "10.0.0.1"}),
    ],
)
def test_the_key_of_the_network_plugin_is_written_as_well(choice: str, want: dict[str, str]) -> None:
    assert pod_annotations("10.0.0.1", choice) == {"berth.dev/address": "10.0.0.1", **want}
