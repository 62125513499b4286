"""Checks that every write starts with: whether the request matches the object that it refers to."""

from api.kube.embedded.apply.errors import bad_request, conflict, invalid, invalid_value, stale
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.options import DeleteOptions
from api.kube.embedded.store import encode


def check_type(kind: Kind, body: Json) -> None:
    """Raise ApiError (400) if the body is not an object of this kind and version."""
    if not isinstance(body, dict):
        raise bad_request("the request body is no JSON object")
    version, name = body.get("apiVersion"), body.get("kind")
    if kind.is_custom and not name:
        raise bad_request(f"Object 'Kind' is missing in '{encode(body).decode()[:200]}'")
    if version and version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if name and name != kind.kind:
        raise bad_request(
            f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"the object provided is unrecognized (must be of type {kind.kind})"
        )
    if not isinstance(body.get("metadata") or {}, dict):
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            "metadata must be an object"
        )


def check_namespace(kind: Kind, namespace: str, body: JsonObject) -> None:
    """Raise ApiError (400) if the body names another namespace than the URL."""
    given = (body.get("metadata") or {}).get("namespace")
    if kind.namespaced and given and given != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(name: str, body: JsonObject) -> None:
    """Raise ApiError (400) if the body names another object than the URL."""
    given = (body.get("metadata") or {}).get("name")
    if given and given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def check_version(kind: Kind, name: str, new: JsonObject, old: JsonObject) -> None:
    """Raise ApiError (409, 422) if an update refers to another state or another object of the same name."""
    uid = new.get("uid")
    if uid and uid != old["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        raise conflict(kind, name, why)
    version = new.get("resourceVersion")
    if not version and not kind.strategy.allows_unconditional_update:
        fault = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(kind, name, [fault])
    if version and version != old["resourceVersion"]:
        raise stale(kind, name)


def check_preconditions(kind: Kind, name: str, metadata: JsonObject, options: DeleteOptions) -> None:
    """Raise ApiError (409) if a deletion refers to another state or another object of the same name."""
    if options.uid and options.uid != metadata["uid"]:
        why = f"UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
        raise conflict(kind, name, f"Precondition failed: {why}")
    version = metadata["resourceVersion"]
    if options.resource_version and options.resource_version != version:
        why = f"ResourceVersion in precondition: {options.resource_version}"
        raise conflict(kind, name, f"Precondition failed: {why}, ResourceVersion in object meta: {version}")
