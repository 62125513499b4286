"""Reviews of a request by the API server: whose token is it, and may that user do this?

Source: Kubernetes, authentication.k8s.io/v1 TokenReview and authorization.k8s.io/v1 SubjectAccessReview, as
controller-runtime and kube-rbac-proxy use them to protect metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user as the API server has authenticated it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """What a user wants to do: a verb, and a path that RBAC lists under nonResourceURLs."""

    verb: str
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    def attributes(self) -> Mapping[str, Any]:
        """Return the fields of a SubjectAccessReview that describe the action."""
        return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}


@dataclass(frozen=True, slots=True)
class ResourceAction:
    """What a user wants to do with objects of a kind; `namespace` "" means those of all namespaces."""

    verb: str
    group: str
    resource: str
    namespace: str

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource}.{self.group} {where}"

    def attributes(self) -> Mapping[str, Any]:
        """Return the fields of a SubjectAccessReview that describe the action."""
        resource = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "namespace": self.namespace,
        }
        return {"resourceAttributes": resource}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


def token_review(token: str) -> bytes:
    """Return the TokenReview for a token that is meant for the API server."""
    return _review("authentication.k8s.io/v1", "TokenReview", {"token": token})


def read_user(raw: bytes) -> User | None:
    """Return the user of a reviewed token, None if it is not accepted. Raises msgspec.DecodeError."""
    status = msgspec.json.decode(raw, type=_TokenReview).status
    # A broken webhook authenticator may return `authenticated` without a user.
    return status.user if status.authenticated and status.user and status.user.username else None


def access_review(user: User, action: Action | ResourceAction) -> bytes:
    """Return the SubjectAccessReview of an action."""
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        **action.attributes(),
    }
    return _review("authorization.k8s.io/v1", "SubjectAccessReview", spec)


def read_allowed(raw: bytes) -> bool:
    """Return whether the reviewed action is allowed. Raises msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=_AccessReview).status.allowed


def _review(version: str, kind: str, spec: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
