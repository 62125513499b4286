"""Quantities are exact, round away from zero, and print as the API server prints them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.parsing.quantities import QuantityError, amount, canonical, parse, to_text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0", Fraction(0), id="zero"),
        pytest.param("500m", Fraction(1, 2), id="milli"),
        pytest.param("7n", Fraction(7, 10**9), id="nano"),
        pytest.param("3u", Fraction(3, 10**6), id="micro"),
        pytest.param("2k", Fraction(2_000), id="kilo is a small k"),
        pytest.param("2M", Fraction(2 * 10**6), id="mega"),
        pytest.param("2G", Fraction(2 * 10**9), id="giga"),
        pytest.param("2T", Fraction(2 * 10**12), id="tera"),
        pytest.param("2P", Fraction(2 * 10**15), id="peta"),
        pytest.param("2E", Fraction(2 * 10**18), id="a bare E is exa"),
        pytest.param("2E3", Fraction(2_000), id="E with digits is an exponent"),
        pytest.param("2e-3", Fraction(2, 1000), id="a negative exponent"),
        pytest.param("2e+3", Fraction(2_000), id="a signed exponent"),
        pytest.param("1Ki", Fraction(1024), id="kibi is a capital K"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="a fraction of a gibi"),
        pytest.param("2Ei", Fraction(2**61), id="exbi"),
        pytest.param("16Ei", Fraction(2**63 - 1), id="binary values are capped at int64"),
        pytest.param("+1", Fraction(1), id="plus sign"),
        pytest.param("-1.5", Fraction(-3, 2), id="minus sign"),
        pytest.param(".5", Fraction(1, 2), id="no digit before the point"),
        pytest.param("5.", Fraction(5), id="no digit after the point"),
        pytest.param("0.1n", Fraction(1, 10**9), id="finer than a nano is rounded up to a nano"),
        pytest.param("-0.1n", Fraction(-1, 10**9), id="and away from zero when negative"),
        pytest.param(4, Fraction(4), id="a JSON integer"),
        pytest.param(0.1, Fraction(1, 10), id="a JSON number means its decimal digits"),
        pytest.param(1e22, Fraction(10**22), id="a large JSON number"),
    ],
)
def test_parse_gives_the_exact_value(text: str | int | float, want: Fraction) -> None:
    assert parse(text) == want


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(".", id="a point alone"),
        pytest.param("Gi", id="a suffix alone"),
        pytest.param("1K", id="a capital K alone is no suffix"),
        pytest.param("1ki", id="a small k is not binary"),
        pytest.param("1e", id="an exponent without digits"),
        pytest.param("1e1.5", id="a broken exponent"),
        pytest.param("1 Gi", id="a blank inside"),
        pytest.param(" 1", id="a blank before"),
        pytest.param("1\n", id="a line end"),
        pytest.param("--1", id="two signs"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("١", id="digits of another script"),
        pytest.param("1e101", id="an exponent beyond sense"),
        pytest.param("9" * 5000, id="more digits than can be converted"),
        pytest.param(True, id="a boolean"),
        pytest.param(float("nan"), id="not a number"),
    ],
)
def test_a_broken_quantity_is_refused_by_name(text: str | int | float) -> None:
    with pytest.raises(QuantityError, match="quantity") as refused:
        parse(text)

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("resource", "quantity", "want"),
    [
        pytest.param("cpu", "1500m", 1500, id="cpu counts in milli"),
        pytest.param("cpu", "2", 2000, id="whole cores are a thousand milli"),
        pytest.param("cpu", "1u", 1, id="less than a milli is a milli"),
        pytest.param("memory", "8Gi", 8589934592, id="memory counts in bytes"),
        pytest.param("memory", "100m", 1, id="a part of a byte is a byte"),
        pytest.param("nvidia.com/gpu", "8", 8, id="devices count in devices"),
        pytest.param("cpu", "-1u", -1, id="negative values round away from zero"),
        pytest.param("cpu", 0.5, 500, id="JSON numbers are taken"),
    ],
)
def test_amount_counts_in_the_unit_of_the_resource(resource: str, quantity: str, want: int) -> None:
    assert amount(resource, quantity) == want


@pytest.mark.parametrize(
    ("resource", "count", "want"),
    [
        pytest.param("cpu", 1500, "1500m", id="cpu in milli"),
        pytest.param("cpu", 2000, "2", id="whole cores"),
        pytest.param("cpu", 5_000_000, "5k", id="thousands of cores"),
        pytest.param("cpu", 0, "0", id="nothing"),
        pytest.param("memory", 8589934592, "8Gi", id="memory"),
        pytest.param("memory", 1023, "1023", id="below a kibi there is no suffix"),
        pytest.param("memory", 1500, "1500", id="not a multiple of a kibi"),
        pytest.param("memory", 3 * 2**29, "1536Mi", id="the largest suffix that loses nothing"),
        pytest.param("memory", 2**70, "1024Ei", id="there is no suffix above exbi"),
        pytest.param("memory", 5000, "5000", id="bytes are never in thousands"),
        pytest.param("memory", 1000, "1k", id="but below 1024 the decimal form is used"),
        pytest.param("ephemeral-storage", 2**20, "1Mi", id="ephemeral storage"),
        pytest.param("hugepages-2Mi", 2**21, "2Mi", id="huge pages"),
        pytest.param("nvidia.com/gpu", 20, "20", id="devices"),
        pytest.param("pods", 5000, "5k", id="thousands of pods"),
        pytest.param("pods", -5000, "-5k", id="negative"),
    ],
)
def test_to_text_is_canonical(resource: str, count: int, want: str) -> None:
    assert to_text(resource, count) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("1000m", "1", id="milli to whole"),
        pytest.param("0.5", "500m", id="no fractional digits"),
        pytest.param("1024Mi", "1Gi", id="the next binary suffix"),
        pytest.param("1.5Gi", "1536Mi", id="a binary fraction"),
        pytest.param("0.5Ki", "512", id="small binary values lose the suffix"),
        pytest.param("1.00001Ki", "1024010240u", id="binary values that are not whole become decimal"),
        pytest.param("1500e3", "1500e3", id="exponents stay exponents"),
        pytest.param("1000e3", "1e6", id="and are normalised"),
        pytest.param("1e1", "10", id="to multiples of three"),
        pytest.param("1000E", "1000E", id="there is no suffix above exa"),
        pytest.param("-0", "0", id="zero has no sign"),
        pytest.param("+5", "5", id="plus is dropped"),
        pytest.param(2, "2", id="a number"),
    ],
)
def test_canonical_is_what_the_api_server_prints(text: str | int, want: str) -> None:
    assert canonical(text) == want


RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "nvidia.com/gpu", "pods"])
QUANTITIES = st.from_regex(
    r"[+-]?[0-9]{1,9}(\.[0-9]{0,12})?([KMGTPE]i|[numkMGTPE]|[eE]-?[0-9])?", fullmatch=True
)


@given(resource=RESOURCES, count=st.integers(-(2**62), 2**62))
def test_to_text_and_amount_are_inverse(resource: str, count: int) -> None:
    assert amount(resource, to_text(resource, count)) == count


@given(text=QUANTITIES)
def test_canonical_keeps_the_value_and_is_stable(text: str) -> None:
    form = canonical(text)

    assert parse(form) == parse(text)
    assert canonical(form) == form


@given(text=QUANTITIES)
def test_amount_never_shrinks_a_request(text: str) -> None:
    assert abs(amount("cpu", text)) >= abs(parse(text) * 1000)
