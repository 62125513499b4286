"""Where kinds are served."""

from __future__ import annotations

import pytest

from api.kube import resources
from api.kube.errors import Invalid
from api.kube.resources import JOBS, NODES, PODS, WORKLOADS, Resource


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "want_path"),
    [
        pytest.param(PODS, None, None, "", "/api/v1/pods", id="core kind in all namespaces"),
        pytest.param(PODS, "", None, "", "/api/v1/pods", id="an empty namespace is all namespaces"),
        pytest.param(JOBS, "a", None, "", "/apis/batch/v1/namespaces/a/jobs", id="one namespace"),
        pytest.param(JOBS, "a", "j", "", "/apis/batch/v1/namespaces/a/jobs/j", id="one object"),
        pytest.param(
            WORKLOADS,
            "a",
            "w",
            "status",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/w/status",
            id="a subresource",
        ),
        pytest.param(NODES, None, "n1", "", "/api/v1/nodes/n1", id="cluster-scoped object"),
        pytest.param(NODES, "", "a:b/c", "", "/api/v1/nodes/a:b%2Fc", id="a slash in a name is quoted"),
    ],
)
def test_paths(
    resource: Resource, namespace: str | None, name: str | None, subresource: str, want_path: str
) -> None:
    assert resource.path(namespace, name, subresource) == want_path


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="no object can be named"):
        JOBS.path("team", name)


def test_a_namespaced_object_needs_a_namespace() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        JOBS.path(None, "j")


def test_a_cluster_scoped_object_is_in_no_namespace() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        NODES.path("team", "n1")


def test_every_kind_has_a_path_of_its_own() -> None:
    kinds = [value for value in vars(resources).values() if isinstance(value, Resource)]

    assert len({kind.path() for kind in kinds}) == len(kinds)
    assert kinds


def test_the_api_version_of_the_core_group_has_no_group() -> None:
    assert (PODS.api_version, JOBS.api_version) == ("v1", "batch/v1")
