"""The Helm chart: it renders the objects of `kubectl apply -k deploy/`, and what its values change."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from tests import parts
from tests.controlplane.helm import find_helm

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "chart"
NAMESPACE = "berth-system"
# The values that switch an optional part on, and its folder in deploy/.
FOLDERS = {
    "dashboards": "dashboards",
    "extender": "extender",
    "monitoring": "monitoring",
    "nodeAgent": "node-agent",
    "podGroups": "podgroups",
    "visibility": "visibility",
    "webhooks": "webhooks",
}
# What each rendering makes again.
WITHOUT_SECRETS = ("redis.secret.create=false", "redis.tls.create=false")
Object = dict[str, Any]
Objects = dict[tuple[str, str, str], Object]


@pytest.fixture(autouse=True)
def tools() -> None:
    """Skip without Helm or kubectl."""
    parts.need("helm")
    parts.need("kubectl")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart."""
    command = [str(find_helm()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@cache
def template(*values: str, namespace: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    """Render the chart with these values, such as `controller.replicas=1`, and without the Secrets."""
    settings = [part for value in (*WITHOUT_SECRETS, *values) for part in ("--set", value)]
    place = ["--namespace", namespace, "--kube-version", "1.36.0"]
    return helm("template", "berth", str(CHART), *place, *settings)


def rendered(*values: str, namespace: str = NAMESPACE) -> Objects:
    """Return the objects of the chart with these values."""
    answer = template(*values, namespace=namespace)
    assert answer.returncode == 0, answer.stderr
    return by_name(answer.stdout, namespace)


def kustomized(folder: str = "") -> Objects:
    """Return the objects of `kubectl kustomize` of a folder in deploy/."""
    command = [parts.find_kubectl(), "kustomize", str(ROOT / "deploy" / folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return by_name(answer.stdout, NAMESPACE)


def by_name(text: str, namespace: str) -> Objects:
    """Return the objects by kind, namespace and name. `namespace` is that of objects which name none."""
    return {
        (one["kind"], one["metadata"].pop("namespace", namespace), one["metadata"]["name"]): without_keep(one)
        for one in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if one
    }


def without_keep(found: Object) -> Object:
    """Return the object without the annotation that only Helm needs."""
    annotations = found["metadata"].get("annotations", {})
    if annotations.pop("helm.sh/resource-policy", None) and not annotations:
        del found["metadata"]["annotations"]
    return found


def controller(objects: Objects, namespace: str = NAMESPACE) -> Object:
    """Return the pod of the controller."""
    spec = objects["Deployment", namespace, "berth-controller"]["spec"]
    pod: Object = spec["template"]["spec"]
    return pod


def frameworks(objects: Objects) -> list[str]:
    """Return the integrations of the configuration."""
    text = objects["ConfigMap", NAMESPACE, "berth-config"]["data"]["config.yaml"]
    found: list[str] = yaml.safe_load(text)["integrations"]["frameworks"]
    return found


def test_the_chart_has_no_faults() -> None:
    answer = helm("lint", str(CHART), "--strict", "--kube-version", "1.36.0")

    assert answer.returncode == 0, answer.stdout


def test_the_chart_and_kustomize_render_the_same_objects() -> None:
    assert rendered("namespace.create=true") == kustomized()


@pytest.mark.parametrize(("value", "folder"), FOLDERS.items())
def test_an_optional_part_is_the_folder_of_its_name(value: str, folder: str) -> None:
    always = rendered()
    added = {name: one for name, one in rendered(f"{value}.enabled=true").items() if name not in always}

    assert added == kustomized(folder)


def test_every_folder_that_kustomize_can_apply_is_in_the_chart() -> None:
    folders = {path.parent.name for path in (ROOT / "deploy").glob("*/kustomization.yaml")}

    # Always installed, and patches of the extender for its certificates.
    assert folders - {"crds", "integrations"} - set(FOLDERS.values()) == {
        "extender-tls",
        "extender-cert-manager",
    }


def test_another_namespace_takes_the_place_of_the_usual_one_everywhere() -> None:
    answer = template(*(f"{value}.enabled=true" for value in FOLDERS), namespace="queues")

    assert answer.returncode == 0, answer.stderr
    assert NAMESPACE not in answer.stdout


@pytest.mark.parametrize(
    ("values", "image"),
    [
        pytest.param(["image.tag=0.2.0"], "berth-queue:0.2.0", id="a tag"),
        pytest.param(
            ["image.repository=r.example/b"], "r.example/b:0.1.0", id="a registry, with the chart's version"
        ),
        pytest.param(
            [f"image.digest=sha256:{'0' * 64}", "image.tag=x"],
            f"berth-queue@sha256:{'0' * 64}",
            id="a digest before a tag",
        ),
    ],
)
def test_one_image_serves_all_of_berths_containers(values: list[str], image: str) -> None:
    objects = rendered(*values, "extender.enabled=true", "nodeAgent.enabled=true")

    assert [one for one in images(objects) if "redis" not in one] == [image] * 3


def images(objects: Objects) -> Iterator[str]:
    """Yield the image of every container."""
    for (kind, _, _), one in objects.items():
        if kind in ("DaemonSet", "Deployment", "StatefulSet"):
            yield from (container["image"] for container in one["spec"]["template"]["spec"]["containers"])


def test_an_integration_that_is_switched_off_has_no_rights_and_is_not_configured() -> None:
    objects = rendered("integrations.rayservices=false")

    assert ("ClusterRole", NAMESPACE, "berth-controller-rayservices") not in objects
    assert frameworks(objects) == [one for one in frameworks(rendered()) if one != "ray.io/rayservice"]


def test_a_configuration_takes_the_place_of_the_shipped_one() -> None:
    assert frameworks(rendered("configuration.integrations.frameworks={batch/job}")) == ["batch/job"]


def test_with_a_redis_of_its_own_a_cluster_gets_no_other() -> None:
    objects = rendered(
        "redis.enabled=false", "redis.url=rediss://b@r.example:6379/0", "redis.secret.name=keys"
    )
    pod = controller(objects)

    assert not [name for name in objects if name[2] == "berth-redis"]
    assert "--redis=rediss://b@r.example:6379/0" in pod["containers"][0]["args"]
    assert {"name": "redis", "secret": {"secretName": "keys"}} in pod["volumes"]
    # The certificate is that of the shipped Redis.
    assert not [arg for arg in pod["containers"][0]["args"] if arg.startswith("--redis-ca")]
    assert "redis-tls" not in {
        one["name"] for one in (*pod["volumes"], *pod["containers"][0]["volumeMounts"])
    }


@pytest.mark.parametrize(
    ("values", "files"),
    [
        pytest.param((), {"--redis-ca": "ca.crt"}, id="a private authority"),
        pytest.param(
            ("redis.external.clientCertificate=true",),
            {"--redis-ca": "ca.crt", "--redis-certificate": "tls.crt", "--redis-key": "tls.key"},
            id="a certificate of the controller too",
        ),
    ],
)
def test_a_redis_of_its_own_is_reached_with_the_files_of_a_secret(
    values: tuple[str, ...], files: dict[str, str]
) -> None:
    url = "rediss+sentinel://b@r.example:26379/main"
    given = ("redis.enabled=false", f"redis.url={url}", "redis.external.tlsSecret=of-redis", *values)
    pod = controller(rendered(*given))

    assert tls_files(pod) == ("of-redis", files)
    assert f"--redis={url}" in pod["containers"][0]["args"]


def tls_files(pod: Object) -> tuple[str, dict[str, str]]:
    """Return the Secret of a controller's TLS with Redis, and by flag the file of it that the flag names."""
    (container,) = pod["containers"]
    (place,) = (one["mountPath"] for one in container["volumeMounts"] if one["name"] == "redis-tls")
    (secret,) = (one["secret"] for one in pod["volumes"] if one["name"] == "redis-tls")
    given = (arg.partition("=") for arg in container["args"])
    found = {flag: path.removeprefix(f"{place}/") for flag, _, path in given if path.startswith(f"{place}/")}
    assert {(item["key"], item["path"]) for item in secret["items"]} == {(n, n) for n in found.values()}
    return secret["secretName"], found


def test_the_example_of_another_redis_in_the_docs_renders_as_with_helm(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "running.md").read_text()
    example = text.partition("# kustomization.yaml with a Redis of your own\n")[2].partition("```")[0]
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", symlinks=True)
    (tmp_path / "kustomization.yaml").write_text(example)
    url = "rediss://berth@redis.example:6379/0"
    values = [
        "redis.enabled=false",
        f"redis.url={url}",
        "redis.external.tlsSecret=redis-client",
        "redis.external.clientCertificate=true",
    ]

    found, want = kustomized(str(tmp_path)), rendered("namespace.create=true", *values)

    assert tls_files(controller(found)) == tls_files(controller(want))
    for pod in map(controller, (found, want)):
        # A merge puts what the patch names first.
        pod["volumes"].sort(key=lambda volume: str(volume["name"]))
        pod["containers"][0]["args"].sort()
    assert found == want


def test_redis_and_the_controller_use_secrets_by_the_names_of_the_values() -> None:
    objects = rendered("redis.secret.name=keys", "redis.tls.name=certificate")
    redis = objects["StatefulSet", NAMESPACE, "berth-redis"]["spec"]["template"]["spec"]

    for pod in (controller(objects), redis):
        used = [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one]
        assert used == ["keys", "certificate"]


def test_the_certificate_of_redis_is_made_at_the_installation() -> None:
    made = rendered("redis.tls.create=true")["Secret", NAMESPACE, "berth-redis-tls"]["data"]
    certificate, authority = (
        x509.load_pem_x509_certificate(base64.b64decode(made[name])) for name in ("tls.crt", "ca.crt")
    )

    assert sorted(made) == ["ca.crt", "tls.crt", "tls.key"]
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["berth-redis", f"berth-redis.{NAMESPACE}.svc"]


def test_what_the_values_say_of_the_controller_is_in_its_deployment() -> None:
    objects = rendered(
        "controller.replicas=3",
        "controller.args={--log-level=debug}",
        "controller.resources.limits.memory=4Gi",
        "controller.nodeSelector.pool=system",
        "controller.tolerations[0].key=system",
        "controller.priorityClassName=system-cluster-critical",
    )
    pod = controller(objects)
    (container,) = pod["containers"]

    assert objects["Deployment", NAMESPACE, "berth-controller"]["spec"]["replicas"] == 3
    assert container["args"][-1] == "--log-level=debug"
    assert container["resources"] == {"limits": {"memory": "4Gi"}}
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [{"key": "system"}]
    assert pod["priorityClassName"] == "system-cluster-critical"


def test_the_keys_of_the_secret_are_made_at_the_installation() -> None:
    keys = rendered("redis.secret.create=true")["Secret", NAMESPACE, "berth-redis"]["data"]
    others = rendered("redis.secret.create=true", "controller.replicas=1")[
        "Secret", NAMESPACE, "berth-redis"
    ]["data"]

    assert sorted(keys) == ["password", "signing-key"]
    assert len({*keys.values(), *others.values()}) == 4


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param("controler.replicas=1", "controler", id="a value that does not exist"),
        pytest.param("controller.replicas=two", "controller/replicas", id="replicas that are no number"),
        pytest.param("integrations.ray=false", "integrations.ray", id="an integration that does not exist"),
        pytest.param("redis.enabled=false", "redis.url", id="no Redis at all"),
        pytest.param("image.digest=abc", "image/digest", id="a digest that is none"),
        pytest.param(
            "redis.enabled=false,redis.url=redis://r,redis.external.tlsSecret=t",
            "redis.external.tlsSecret",
            id="files of TLS for a URL without TLS",
        ),
        pytest.param(
            "redis.enabled=false,redis.url=rediss://r,redis.external.clientCertificate=true",
            "redis.external.clientCertificate",
            id="a certificate without its Secret",
        ),
    ],
)
def test_a_wrong_value_is_named(value: str, named: str) -> None:
    answer = template(value)

    assert answer.returncode == 1
    assert named in answer.stderr.replace(".replicas", "/replicas").replace("image.digest", "image/digest")
