"""Tokens of ServiceAccounts: created by TokenRequest, verified by TokenReview. Neither of the two is stored.

A token is a JWT with the same claims as in the real server, signed
with a key that only this server has. As in the real server, each
review checks whether it is still valid: a token becomes invalid when
its ServiceAccount is deleted, and one that is bound to a pod when that
pod is deleted. Both are compared by uid, so that a later object of the
same name does not inherit the token. Source:
k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage/token.go and
pkg/serviceaccount.
"""

import base64
import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from api.kube.embedded.apply.errors import ApiError, FieldError, InvalidObject, bad_request, invalid_value
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.requests import Target
from api.kube.embedded.verbs import Verbs
from api.parsing.times import to_rfc3339

ISSUER: Final = "https://kubernetes.default.svc"
REVIEWS_PATH: Final = ("apis", "authentication.k8s.io", "v1", "tokenreviews")
_API_VERSION: Final = "authentication.k8s.io/v1"
_LEAST_SECONDS: Final = 600
_DEFAULT_SECONDS: Final = 3600
_MOST_SECONDS: Final = 1 << 32
_EXTRA: Final = "authentication.kubernetes.io/"
_REFUSED: Final = "[invalid bearer token]"


class Tokens:
    """Creates and verifies tokens."""

    def __init__(self, verbs: Verbs, catalog: Catalog) -> None:
        self._verbs = verbs
        self._catalog = catalog
        # A new key for each process: a token need not survive the objects that it refers to, which
        # are only in memory.
        self._key = secrets.token_bytes(32)

    def give(self, target: Target, body: Json) -> JsonObject:
        """Return the response to a TokenRequest for the ServiceAccount at `target`. Raises ApiError."""
        account = self._verbs.get(target.kind, target.space, target.name or "").item
        spec = _spec(body)
        seconds = spec.get("expirationSeconds", _DEFAULT_SECONDS)
        _check_seconds(seconds)
        now = int(time.time())
        bound = self._bound(target.space, target.name or "", spec.get("boundObjectRef"))
        claims = {
            "aud": spec.get("audiences") or [ISSUER],
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {"namespace": target.space, **bound, "serviceaccount": _named(account)},
            "nbf": now,
            "sub": f"system:serviceaccount:{target.space}:{target.name}",
        }
        status = {"token": self._sign(claims), "expirationTimestamp": to_rfc3339(now + seconds)}
        return {
            "kind": "TokenRequest",
            "apiVersion": _API_VERSION,
            "metadata": {"name": target.name, "namespace": target.space},
            "spec": {**spec, "audiences": claims["aud"], "expirationSeconds": seconds},
            "status": status,
        }

    def review(self, body: Json) -> JsonObject:
        """Return the response to a TokenReview. Raises ApiError (400) if it contains no token."""
        spec = _spec(body)
        token = spec.get("token")
        if not isinstance(token, str) or not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = spec.get("audiences") or [ISSUER]
        return {
            "kind": "TokenReview",
            "apiVersion": _API_VERSION,
            "metadata": {},
            "spec": spec,
            "status": self._judge(token, wanted),
        }

    def _judge(self, token: str, wanted: Sequence[str]) -> JsonObject:
        claims = self._verify(token)
        # One common audience is sufficient. Only common audiences are returned, so that the caller knows
        # which ones the token is valid for.
        audiences = [one for one in wanted if claims is not None and one in claims["aud"]]
        if claims is None or not audiences or not self._still_holds(claims["kubernetes.io"]):
            # The same message for every reason, so that it reveals nothing about the token.
            return {"user": {}, "error": _REFUSED}
        own = claims["kubernetes.io"]
        space, account = own["namespace"], own["serviceaccount"]
        extra = {f"{_EXTRA}credential-id": [f"JTI={claims['jti']}"]}
        if "pod" in own:
            extra |= {f"{_EXTRA}pod-name": [own["pod"]["name"]], f"{_EXTRA}pod-uid": [own["pod"]["uid"]]}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"]
        user = {"username": claims["sub"], "uid": account["uid"], "groups": groups, "extra": extra}
        return {"authenticated": True, "user": user, "audiences": audiences}

    def _still_holds(self, own: Mapping[str, Any]) -> bool:
        space = own["namespace"]
        return self._is_there("serviceaccounts", space, own["serviceaccount"]) and (
            "pod" not in own or self._is_there("pods", space, own["pod"])
        )

    def _is_there(self, plural: str, space: str, named: Mapping[str, str]) -> bool:
        try:
            found = self._find(plural, space, named["name"])
        except ApiError:
            return False
        # Compared by uid, so that a later object of the same name does not inherit the token.
        return bool(found["metadata"]["uid"] == named["uid"])

    def _bound(self, space: str, account: str, reference: Json) -> dict[str, JsonObject]:
        if not reference:
            return {}
        if reference.get("kind") != "Pod" or reference.get("apiVersion", "v1") != "v1":
            raise bad_request(f"cannot bind token to object of type {reference.get('kind')}")
        pod = self._find("pods", space, reference.get("name", ""))
        uid, wanted = pod["metadata"]["uid"], reference.get("uid") or pod["metadata"]["uid"]
        if uid != wanted:
            message = (
                f'Operation cannot be fulfilled on Pod "{reference["name"]}": the UID in the bound object'
                f" reference ({wanted}) does not match the UID in record."
                " The object might have been deleted and then recreated"
            )
            raise ApiError(409, "Conflict", message)
        # Without the ServiceAccount admission plugin, the field may be empty.
        if (pod.get("spec") or {}).get("serviceAccountName", "") != account:
            message = f'cannot bind token for serviceaccount "{account}" to pod running with different'
            raise bad_request(message + " serviceaccount name.")
        return {"pod": _named(pod)}

    def _find(self, plural: str, space: str, name: str) -> JsonObject:
        kind = self._catalog.find("", "v1", plural)
        assert kind is not None, f"{plural} are built in"
        return self._verbs.get(kind, space, name).item

    def _sign(self, claims: JsonObject) -> str:
        head = _encoded(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_encoded(msgspec.json.encode(claims))}"
        return f"{signed}.{self._signature(signed)}"

    def _verify(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token if its signature is valid and it has not expired; otherwise None."""
        signed, _, signature = token.rpartition(".")
        # In constant time, because the duration of an early exit would reveal how many characters are right.
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        payload = signed.partition(".")[2]
        claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(payload + "==="))
        return claims if claims["exp"] > time.time() else None

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.new(self._key, signed.encode(), hashlib.sha256).digest())


def _spec(body: Json) -> JsonObject:
    spec = body.get("spec") if isinstance(body, dict) else None
    return spec if isinstance(spec, dict) else {}


def _check_seconds(seconds: Json) -> None:
    rule = ""
    if not isinstance(seconds, int) or seconds < _LEAST_SECONDS:
        rule = "may not specify a duration less than 10 minutes"
    elif seconds > _MOST_SECONDS:
        rule = "may not specify a duration larger than 2^32 seconds"
    if rule:
        fault: FieldError = invalid_value("spec.expirationSeconds", seconds, rule)
        raise InvalidObject(f'TokenRequest.authentication.k8s.io "" is invalid: {fault.text}')


def _named(item: JsonObject) -> JsonObject:
    return {"name": item["metadata"]["name"], "uid": item["metadata"]["uid"]}


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
