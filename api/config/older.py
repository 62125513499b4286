"""Conversion of Kueue's Configuration from v1beta1 to v1beta2.

v1beta1 enables waitForPodsReady and fairSharing by a field `enable`; in v1beta2 they are enabled by the
presence of the section.
"""

from collections.abc import Mapping
from typing import Any

_OLD = "config.kueue.x-k8s.io/v1beta1"


def upgrade(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the document in v1beta2, and a sentence for each field that is dropped.

    A document of v1beta2 is returned unchanged, except that the feature gate DisableWaitForPodsReady
    removes the section waitForPodsReady.
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
        # In v1beta1, blockAdmission defaults to true in an enabled section.
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
        notes.append("queueVisibility was removed in v1beta2; positions are served by the visibility API")
    return notes


def _without(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in keys}
