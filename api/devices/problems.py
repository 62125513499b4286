"""Why devices cannot be counted, in the form of Kubernetes' field errors, which Kueue's users search for."""

from __future__ import annotations

from api.jobs.resource_requests import RequestError


def invalid(field: str, why: str, *, value: str = "null") -> RequestError:
    """Return the error for a value that has to be changed."""
    return RequestError(f"{field}: Invalid value: {value}: {why}")


def missing(field: str, what: str, *, fix: str) -> RequestError:
    """Return the error for something that the configuration does not have."""
    return RequestError(f'{field}: Not found: "{what}"; {fix}')


def not_now(field: str, why: str) -> RequestError:
    """Return the error for something that the cluster does not have, which may appear later."""
    return RequestError(f"{field}: Internal error: {why}")
