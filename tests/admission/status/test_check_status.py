"""Whether a check that asks for nodes can be evaluated, as its Active condition says."""

from __future__ import annotations

import msgspec
import pytest

from admission.engine.engine import Engine
from admission.status.check_status import check_status
from api.keys import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from api.provisioning import ProvisioningConfig
from api.queueing import AdmissionCheck, CheckParameters

NOW = 1_800_000_000.0
CONFIG = ProvisioningConfig(name="c", class_name="class")
NAMED = CheckParameters(group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name="c")


def make_engine(
    parameters: CheckParameters | None = NAMED, *, controller: str = PROVISIONING_CONTROLLER
) -> Engine:
    """Return an engine that knows one check."""
    engine = Engine()
    check = AdmissionCheck(name="check", controller_name=controller, is_active=False, parameters=parameters)
    engine.objects.upsert(check, now=NOW)
    return engine


def active(engine: Engine) -> tuple[bool, str, str]:
    """Return status, reason and message of the check's condition."""
    view = engine.queues.provisioning_check("check")
    assert view is not None
    return view.is_active, view.reason, view.message


def test_a_check_is_active_with_its_settings_and_the_kind_of_its_requests() -> None:
    engine = make_engine()
    assert active(engine) == (
        False,
        "BadParametersRef",
        'ProvisioningRequestConfig.kueue.x-k8s.io "c" not found',
    )

    engine.objects.upsert(CONFIG, now=NOW)
    assert active(engine)[:2] == (False, "NoProvisioningRequests")

    engine.objects.note_provisioning_served()
    assert active(engine) == (True, "Active", "The admission check is active")


def test_settings_that_cannot_be_read_are_named() -> None:
    engine = make_engine()
    engine.objects.unreadable(ProvisioningConfig, "c", "spec.provisioningClassName is empty", now=NOW)

    assert active(engine)[2] == (
        "ProvisioningRequestConfig c cannot be read: spec.provisioningClassName is empty"
    )


def test_a_check_without_parameters_says_so() -> None:
    assert active(make_engine(None))[2] == "missing parameters reference"


def test_checks_of_other_controllers_are_left_to_them() -> None:
    engine = make_engine(controller=MULTIKUEUE_CONTROLLER)

    assert engine.queues.provisioning_check("check") is None
    assert engine.queues.provisioning_configs(["check", "unknown"]) == {}


@pytest.mark.parametrize("change", ["settings", "kind"])
def test_its_status_is_written_again_when_what_it_needs_comes(change: str) -> None:
    engine = make_engine()
    engine.drain_touched()

    if change == "settings":
        engine.objects.upsert(CONFIG, now=NOW)
    else:
        engine.objects.note_provisioning_served()

    assert engine.drain_touched().checks == {"check"}


def test_a_condition_that_says_it_already_is_not_written() -> None:
    engine = make_engine()
    view = engine.queues.provisioning_check("check")
    assert view is not None

    written = check_status(b'{"metadata":{"name":"check"}}', view, now=NOW)

    assert written is not None
    (condition,) = msgspec.json.decode(written)["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Active", "False")
    assert check_status(written, view, now=NOW) is None
