"""Kueue's Configuration of v1beta1, said in v1beta2.

v1beta1 switched waitForPodsReady and fairSharing by a field `enable`; v1beta2 has the section or has it not.
"""

from collections.abc import Mapping
from typing import Any

_OLD = "config.kueue.x-k8s.io/v1beta1"


def upgrade(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the document in v1beta2, and a sentence for each field that is left out.

    A document of v1beta2 is returned as it is, but for the feature gate that switches waitForPodsReady off.
    """
    body = dict(document)
    notes: list[str] = []
    if body.get("apiVersion") == _OLD:
        _upgrade_ready(body)
        _upgrade_sharing(body)
        notes = _dropped(body)
    gates = body.get("featureGates")
    if isinstance(gates, dict) and gates.get("DisableWaitForPodsReady") is True:
        body["waitForPodsReady"] = None
    return body, notes


def _upgrade_ready(body: dict[str, Any]) -> None:
    section = body.get("waitForPodsReady", {})
    if not isinstance(section, dict):
        return
    if section.get("enable") is True:
        # In v1beta1 blocking was the default of an enabled section.
        body["waitForPodsReady"] = {"blockAdmission": True, **_without(section, "enable")}
    else:
        body["waitForPodsReady"] = None


def _upgrade_sharing(body: dict[str, Any]) -> None:
    section = body.get("fairSharing")
    if not isinstance(section, dict):
        return
    if section.get("enable") is True:
        strategies = section.get("preemptionStrategies")
        body["fairSharing"] = _without(section, "enable", *(() if strategies else ("preemptionStrategies",)))
    else:
        del body["fairSharing"]


def _dropped(body: dict[str, Any]) -> list[str]:
    notes = []
    if body.pop("queueVisibility", None) is not None:
        notes.append("queueVisibility is gone in v1beta2; positions are served by the visibility API")
    return notes


def _without(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in keys}
