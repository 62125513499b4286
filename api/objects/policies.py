"""Partial struct of Berth's AdmissionPolicy."""

from __future__ import annotations

import msgspec

from api.objects.common import Meta, Wire


class AdmissionPolicyObject(Wire, frozen=True):
    """berth.dev AdmissionPolicy; its spec stays undecoded until the model validates it."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")
