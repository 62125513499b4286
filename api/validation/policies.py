"""Rules of AdmissionPolicies that a schema cannot express."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from api.models.admission_policy import AdmissionPolicy, AdmissionPolicySpec
from api.models.common import Quantity
from api.models.policy_placement import FlavorWeights, PlacementSection, ScoringWeights
from api.models.policy_time import CapacityReservation, Ordering, QuotaWindow
from api.parsing.cron import CronError, parse_cron
from api.parsing.faults import FieldError
from api.parsing.quantities import parse
from api.validation.names import duplicates, selector_errors


def admission_policy_errors(policy: AdmissionPolicy) -> Iterator[FieldError]:
    """Yield the faults that prevent an AdmissionPolicy from taking effect."""
    spec = policy.spec
    yield from selector_errors("spec.clusterQueues.selector", spec.cluster_queues.selector)
    if spec.ordering is not None:
        yield from _ordering_errors(spec.ordering)
    if spec.placement is not None:
        yield from _placement_errors(spec.placement)
    yield from _calendar_errors(spec)


def _ordering_errors(ordering: Ordering) -> Iterator[FieldError]:
    # Duplicates are part of the same fault: a level between two equal limits would always be empty.
    if sorted(set(ordering.levels)) != ordering.levels:
        yield FieldError(
            path="spec.ordering.levels", value=ordering.levels, rule="must be in ascending order"
        )


def _placement_errors(placement: PlacementSection) -> Iterator[FieldError]:
    rules = placement.domain_rules
    sizes = [rule.max_nodes for rule in rules.size_rules or ()] if rules else []
    # It is undefined which of two rules for the same size applies.
    for size in duplicates(map(str, sizes)):
        yield FieldError(
            path="spec.placement.domainRules.sizeRules", value=int(size), rule="maxNodes must be unique"
        )
    yield from _weight_errors("spec.placement.scoringWeights", placement.scoring_weights)
    if placement.flavors is not None:
        yield from _weight_errors("spec.placement.flavors.weights", placement.flavors.weights)


def _weight_errors(path: str, weights: ScoringWeights | FlavorWeights) -> Iterator[FieldError]:
    # With only zero weights all scores are equal, and the order of names would decide.
    if sum(weights.model_dump().values()) <= 0:
        yield FieldError(
            path=path,
            value=weights.model_dump(by_alias=True),
            rule="at least one weight must be more than 0",
        )


def _calendar_errors(spec: AdmissionPolicySpec) -> Iterator[FieldError]:
    for index, window in enumerate(spec.quota_windows or ()):
        yield from _window_errors(f"spec.quotaWindows[{index}]", window)
    for index, reservation in enumerate(spec.reservations or ()):
        yield from _reservation_errors(f"spec.reservations[{index}]", reservation)


def _window_errors(path: str, window: QuotaWindow) -> Iterator[FieldError]:
    yield from _amount_errors(f"{path}.nominalQuota", window.nominal_quota)
    if window.schedule is None:
        # A mixture of the two forms would leave the end of the window undefined.
        if window.start is None or window.end is None or window.duration_seconds is not None:
            yield _which_form(path, window)
        else:
            yield from _span_errors(path, window.start, window.end)
        return
    if window.start is not None or window.end is not None or window.duration_seconds is None:
        yield _which_form(path, window)
    try:
        parse_cron(window.schedule)
    except CronError as error:
        yield FieldError(path=f"{path}.schedule", value=window.schedule, rule=str(error))
    # UTC needs no time zone database, which a small image may lack.
    if window.time_zone == "UTC":
        return
    try:
        ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield FieldError(
            path=f"{path}.timeZone",
            value=window.time_zone,
            rule="must be an IANA time zone such as Europe/Berlin",
        )


def _which_form(path: str, window: QuotaWindow) -> FieldError:
    return FieldError(
        path=path, value=window.name, rule="give start and end, or schedule and durationSeconds"
    )


def _reservation_errors(path: str, reservation: CapacityReservation) -> Iterator[FieldError]:
    yield from _span_errors(path, reservation.start, reservation.end)
    # A domain reserves all that its nodes have; amounts in addition could only contradict that.
    if (reservation.resources is None) == (reservation.domain is None):
        yield FieldError(path=path, value=reservation.name, rule="give resources or a domain, not both")
    for index, each in enumerate(reservation.resources or ()):
        yield from _amount_errors(f"{path}.resources[{index}].amount", each.amount)


def _amount_errors(path: str, value: Quantity) -> Iterator[FieldError]:
    if parse(value) < 0:
        yield FieldError(path=path, value=value, rule="must not be negative")


def _span_errors(path: str, start: str, end: str) -> Iterator[FieldError]:
    # Converted to upper case, since RFC 3339 allows a lower-case `t` and `z`, which Python
    # 3.11 does not parse.
    if datetime.fromisoformat(end.upper()) <= datetime.fromisoformat(start.upper()):
        yield FieldError(path=f"{path}.end", value=end, rule=f"must be after start ({start})")
