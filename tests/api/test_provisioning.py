"""ProvisioningRequests as values: names as Kueue gives them, settings, and which condition counts."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from api.objects.provisioning import ProvisioningConfigObject, ProvisioningRequestObject
from api.parsing.problems import SpecError
from api.provisioning import (
    MergePolicy,
    Outcome,
    ProvisioningConfig,
    attempt_of,
    parameters_problem,
    request_name,
    template_name,
    to_provisioning_config,
    to_provisioning_request,
)
from api.queueing import CheckParameters
from tests.api.samples import full

LONG = "w" * 240


def test_names_are_those_that_kueue_gives() -> None:
    request = request_name("job-train-1a2b3", "capacity", 2)

    assert request == "job-train-1a2b3-capacity-2"
    assert template_name(request, "main") == "ppt-job-train-1a2b3-capacity-2-main"


def test_a_long_name_is_cut_with_a_hash_of_all_of_it() -> None:
    whole = f"{LONG}-capacity-1"
    digest = hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()[:5]

    assert request_name(LONG, "capacity", 1) == f"{whole[:247]}-{digest}"
    assert len(request_name(LONG, "capacity", 1)) == 253


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param("w-check-1", 1, id="the first attempt"),
        pytest.param("w-check-12", 12, id="a later attempt"),
        pytest.param("w-check-other-1", None, id="another check whose name begins alike"),
        pytest.param("w-check-1x", None, id="a name that goes on after the number"),
        pytest.param("v-check-1", None, id="another Workload"),
    ],
)
def test_the_attempt_is_read_from_the_name(request_: str, want: int | None) -> None:
    assert attempt_of(request_, "w", "check") == want


def test_the_attempt_of_a_name_that_was_cut_is_found_too() -> None:
    assert attempt_of(request_name(LONG, "check", 3), LONG, "check") == 3
    assert attempt_of(request_name(LONG, "other", 3), LONG, "check") is None


def config(**spec: Any) -> ProvisioningConfig:
    """Return the settings of an object with these fields."""
    obj = {"metadata": {"name": "c"}, "spec": {"provisioningClassName": "class", **spec}}
    return to_provisioning_config(msgspec.convert(obj, ProvisioningConfigObject))


def test_settings_are_read() -> None:
    found = to_provisioning_config(
        msgspec.convert(full("ProvisioningRequestConfig"), ProvisioningConfigObject)
    )

    assert found == ProvisioningConfig(
        name="default",
        class_name="check-capacity.autoscaling.x-k8s.io",
        parameters={"ValidUntilSeconds": "600"},
        managed_resources=frozenset({"nvidia.com/gpu"}),
        backoff_limit=2,
        backoff_base_seconds=30,
        backoff_max_seconds=900,
        selector_details={"pool": "NodePoolName"},
        merge_policy=MergePolicy.IDENTICAL_REQUIREMENTS,
    )


def test_settings_have_the_defaults_of_kueue() -> None:
    found = config()

    assert (found.backoff_limit, found.backoff_base_seconds, found.backoff_max_seconds) == (3, 60, 1800)
    assert found.merge_policy is MergePolicy.NONE


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"provisioningClassName": ""}, "spec.provisioningClassName is empty", id="no class"),
        pytest.param({"podSetMergePolicy": "All"}, "spec.podSetMergePolicy is 'All'", id="unknown policy"),
    ],
)
def test_settings_that_cannot_be_read_say_which_field(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        config(**spec)


@pytest.mark.parametrize(
    ("attempt", "want"), [(1, 60), (2, 120), (5, 960), (6, 1800), (10_000, 1800)], ids=str
)
def test_the_delay_doubles_up_to_its_maximum(attempt: int, want: int) -> None:
    assert config().backoff_seconds(attempt) == want


@pytest.mark.parametrize(
    ("true", "want"),
    [
        pytest.param((), None, id="no condition: it waits"),
        pytest.param(("Accepted",), Outcome.ACCEPTED, id="accepted"),
        pytest.param(("Accepted", "Provisioned"), Outcome.PROVISIONED, id="provisioned"),
        pytest.param(("Provisioned", "BookingExpired"), Outcome.BOOKING_EXPIRED, id="the booking expired"),
        pytest.param(
            ("Provisioned", "BookingExpired", "CapacityRevoked"), Outcome.CAPACITY_REVOKED, id="revoked"
        ),
        pytest.param(("Provisioned", "Failed", "CapacityRevoked"), Outcome.FAILED, id="failed before all"),
    ],
)
def test_of_several_conditions_one_counts(true: tuple[str, ...], want: Outcome | None) -> None:
    conditions = [{"type": one, "status": "True", "message": "m"} for one in true]
    obj = {"metadata": {"name": "r"}, "spec": {}, "status": {"conditions": conditions}}

    found = to_provisioning_request(msgspec.convert(obj, ProvisioningRequestObject))

    assert found.outcome == want


@pytest.mark.parametrize(
    ("parameters", "want"),
    [
        pytest.param(None, "missing parameters reference", id="none"),
        pytest.param(
            ("kueue.x-k8s.io", "MultiKueueConfig", "c"),
            'wrong kind "MultiKueueConfig", expecting "ProvisioningRequestConfig": bad parameters reference',
            id="of another kind",
        ),
        pytest.param(
            ("example.com", "ProvisioningRequestConfig", "c"),
            'wrong group "example.com", expecting "kueue.x-k8s.io": bad parameters reference',
            id="of another group",
        ),
        pytest.param(("kueue.x-k8s.io", "ProvisioningRequestConfig", "c"), None, id="of settings"),
    ],
)
def test_parameters_name_the_settings_or_say_why_not(
    parameters: tuple[str, str, str] | None, want: str | None
) -> None:
    named = (
        None
        if parameters is None
        else CheckParameters(**dict(zip(("group", "kind", "name"), parameters, strict=True)))
    )

    assert parameters_problem(named) == want
