"""Rows of policies: the sections of each, with those that it inherits."""

from __future__ import annotations

import msgspec

from admission.cli.views.policy_view import policy_rows
from api.objects.policies import AdmissionPolicyObject


def make_policy(name: str, **spec: object) -> AdmissionPolicyObject:
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": msgspec.Raw(msgspec.json.encode(spec))}, AdmissionPolicyObject
    )


def test_a_row_shows_inherited_sections_after_its_own_and_no_calendar_of_the_base() -> None:
    policies = [
        make_policy("own", base="near", ordering={}),
        make_policy("near", base="far", ordering={}, quotaWindows=[{}], aliases="Articles"),
        make_policy("far", base="own", estimates={}),
    ]

    sections = {row.name: row.sections for row in policy_rows(policies)}

    # Also where they lead in a circle, as the condition says.
    assert sections["own"] == ("ordering", "aliases", "estimates")
