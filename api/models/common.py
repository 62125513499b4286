"""Types that several kinds share: names, quantities, timestamps, selectors, conditions, taints.

Values keep the text in which they were written ("1000m" stays "1000m"), so that an object which is read
through a model and dumped with `by_alias=True, exclude_unset=True` is unchanged.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from api.models.markers import ATOMIC, INT_OR_STRING, PRESERVE, Extension, field_rules, list_map, rule
from api.parsing.quantities import QuantityError, parse


class Model(BaseModel):
    """Base of all models: camelCase on the wire, unknown fields are ignored, values are frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
    )


class OpenModel(Model):
    """Base of models that declare some fields of an object and keep all other fields as they are."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})


_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL_PATTERN = rf"^{_DNS_LABEL}$"
DNS_SUBDOMAIN_PATTERN = rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$"
LABEL_KEY_PATTERN = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
QUANTITY_PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


def _matching(pattern: str, kind: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        # Not match(): in Python, `$` also matches before a trailing newline.
        if compiled.fullmatch(text) is None:
            raise PydanticCustomError("name", "must be {kind}", {"kind": kind})
        return text

    return check


# Each pattern is given twice, as a sentence for people and as a schema keyword for the API server, because
# pydantic's own message would show only the regular expression.
DnsLabel = Annotated[
    str,
    Field(max_length=63),
    AfterValidator(_matching(DNS_LABEL_PATTERN, "a DNS label: lower-case letters, digits and '-'")),
    Extension({"pattern": DNS_LABEL_PATTERN}),
]
DnsSubdomain = Annotated[
    str,
    Field(max_length=253),
    AfterValidator(
        _matching(DNS_SUBDOMAIN_PATTERN, "a DNS subdomain: lower-case letters, digits, '-' and '.'")
    ),
    Extension({"pattern": DNS_SUBDOMAIN_PATTERN}),
]
LabelKey = Annotated[
    str,
    AfterValidator(_matching(LABEL_KEY_PATTERN, "a label key: an optional DNS prefix and '/', then a name")),
    Extension({"pattern": LABEL_KEY_PATTERN}),
]
CheckName = Annotated[str, Field(min_length=1, max_length=316)]
"""Name of an AdmissionCheck."""


class _IntegerFormat:
    """Omits bounds of an integer that the API server derives from its format (int32, int64)."""

    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        bound = 2 ** (self.bits - 1)
        said = {("minimum", -bound), ("maximum", bound - 1)}
        words = {key: value for key, value in handler(schema).items() if (key, value) not in said}
        return {**words, "format": f"int{self.bits}"}


Int32 = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1), _IntegerFormat(32)]
Int64 = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1), _IntegerFormat(64)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), _IntegerFormat(32)]
"""A number of pods, Workloads or events: 0 or more."""
PositiveCount = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1), _IntegerFormat(32)]


def _quantity(value: object) -> int | str:
    # A JSON number with a fraction is rejected here, because int-or-string rejects it on the API server too.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("quantity", 'must be a quantity such as "500m", "2" or "1.5Gi"')
    try:
        parse(value)
    except QuantityError as error:
        raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from error
    return value


Quantity = Annotated[
    int | str,
    PlainValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            INT_OR_STRING: True,
        }
    ),
]
"""An amount of a resource as it was written; `api.parsing.quantities.parse` returns its value."""


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _timestamp(text: str) -> str:
    try:
        if _RFC3339.fullmatch(text) is None:
            raise ValueError(text)
        datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise PydanticCustomError("time", "must be an RFC 3339 time such as 2026-01-31T12:00:00Z") from error
    return text


Timestamp = Annotated[str, AfterValidator(_timestamp), Extension({"format": "date-time"})]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]


class ObjectMeta(OpenModel):
    """Standard metadata of an object. The API server defines its fields, so the CRDs do not repeat them."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class KueueObject(Model):
    """Base of the kinds in Kueue's API group."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"] = "kueue.x-k8s.io/v1beta2"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)


class LabelSelectorRequirement(Model):
    """A requirement on one label."""

    key: str
    """Label key that the requirement applies to."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[list[str], ATOMIC] | None = None
    """Values for In and NotIn; empty for Exists and DoesNotExist."""


class LabelSelector(Model):
    """Labels that an object must have; all requirements must hold. An empty selector matches every object."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_expressions: Annotated[list[LabelSelectorRequirement], ATOMIC] | None = None
    """Requirements that must all hold."""
    match_labels: dict[str, str] | None = None
    """Labels and the values that they must have."""


class Condition(Model):
    """One aspect of the observed state of an object, in the standard form of Kubernetes."""

    last_transition_time: Timestamp
    """When `status` last changed."""
    message: Annotated[str, Field(max_length=32768)]
    """Human-readable details about the last transition; may be empty."""
    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """metadata.generation of the object that the condition was observed on."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """CamelCase word that programs can rely on."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    type: Annotated[LabelKey, Field(max_length=316)]
    """Name of the condition, in CamelCase."""


Conditions = Annotated[list[Condition], Field(max_length=16), list_map("type")]


class FairSharing(Model):
    """Weight of a queue or cohort when shares are compared."""

    weight: Quantity = 1
    """Divisor of the share: twice the weight halves the share for the same usage. Must be 0 or
    more than 1e-9. With 0, only quota that no other queue wants may be borrowed. Default 1: all
    siblings have equal weight."""


class FairSharingStatus(Model):
    """Share of a queue or cohort, as of its last change."""

    weighted_share: Int64
    """Highest ratio of borrowed to lendable quota among all resources, divided by the weight, rounded up. The
    maximum int64 if the weight is 0 and quota is borrowed."""


class Taint(Model):
    """A taint of a node."""

    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""
    key: str
    """Taint key."""
    time_added: Timestamp | None = None
    """When the taint was added; written only by the node controller."""
    value: str | None = None
    """Value that belongs to the key."""


class Toleration(Model):
    """A toleration of a pod."""

    effect: str | None = None
    """Taint effect that is tolerated; absent tolerates every effect."""
    key: str | None = None
    """Taint key that is tolerated; absent with operator Exists tolerates every key."""
    operator: str | None = None
    """Equal (default) or Exists."""
    toleration_seconds: Int64 | None = None
    """Seconds for which a NoExecute taint is tolerated; absent means without limit."""
    value: str | None = None
    """Value that the taint must have; absent with operator Exists."""


_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"

Taints = Annotated[
    list[Taint],
    Field(max_length=8),
    ATOMIC,
    field_rules(
        rule(
            f"self.all(t, t.effect in {_EFFECTS})",
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        )
    ),
]
Tolerations = Annotated[
    list[Toleration],
    Field(max_length=8),
    ATOMIC,
    field_rules(
        rule(
            "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))",
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        rule(
            "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        rule(
            "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
            "supported toleration values: 'Equal'(default), 'Exists'",
        ),
        rule(
            "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value))",
            "a value must be empty when 'operator' is 'Exists'",
        ),
        rule(
            f"self.all(t, !has(t.effect) || t.effect in {_EFFECTS})",
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        ),
    ),
]
