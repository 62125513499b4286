"""Reads with the reader's own rights: of the whole cluster, or else of one namespace.

A tenant has a RoleBinding in its namespace and may read nothing of others, and no kind without a namespace.
It gets what it may read, and never more.
"""

from __future__ import annotations

import argparse
from typing import TypeVar

from admission.cli.common.errors import WrongUsageError
from api.kube.client import KubeClient
from api.kube.errors import Forbidden
from api.kube.listing import KubeObject, ListResult
from api.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)


def namespace_of(arguments: argparse.Namespace, client: KubeClient) -> str | None:
    """Return the namespace to show: -n, else the context's own; None for all of them."""
    if arguments.all_namespaces:
        return None
    namespace: str | None = arguments.namespace
    return namespace or client.namespace


async def list_readable(
    client: KubeClient, resource: Resource, *, type_: type[T], namespace: str | None
) -> ListResult[T]:
    """Return the objects of all namespaces, or of `namespace` alone if the reader may read no more.

    Raises KubeError; Forbidden if that may not be read either, or if no namespace is given.
    """
    try:
        return await client.list(resource, type_=type_)
    except Forbidden as error:
        if not resource.namespaced:
            raise
        if namespace is None:
            raise unreadable(error, namespace) from error
        return await client.list(resource, namespace, type_=type_)


def no_kinds(client: KubeClient, version: str = "kueue.x-k8s.io/v1beta2") -> WrongUsageError:
    """Return the error for a server that does not serve the kinds."""
    return WrongUsageError(
        f"{client.server} does not serve {version};"
        " install the kinds with: berth crds | kubectl apply --server-side -f -"
    )


def unreadable(error: Forbidden, namespace: str | None) -> Forbidden:
    """Return the error of a list that was refused, with the way out where all namespaces were asked for."""
    if namespace is not None:
        return error
    return Forbidden(f"{error}; name a namespace that you may read with -n NAMESPACE", status=error.status)
