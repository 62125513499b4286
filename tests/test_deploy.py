"""The manifests of deploy/: what they name exists, and gives no more rights than are used."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from admission.cli.__main__ import main, make_parser
from admission.cli.common.settings_file import read_config
from admission.cli.trial.demo_policy import demo_policy_text
from admission.controller.http.ca_injector import API_SERVICES, WEBHOOKS
from admission.controller.http.serving_certificates import SECRET, SERVICE
from admission.controller.integration_rights import INTEGRATIONS
from admission.controller.settings import KUBE_SCHEDULER, cluster_state_settings
from api import keys
from api.config.loading import ControllerConfig, load_config
from api.definitions.crds import KINDS
from api.wire.addressing import is_loopback
from tests import rights
from tests.admission.node_agent.recorded import labels_of

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NAMESPACE = "berth-system"
# The folders that `kubectl apply -k` takes, below deploy/, and files in them that it does not.
FOLDERS = ("", "extender", "integrations", "monitoring", "node-agent", "visibility", "webhooks")
APART = {"scheduler-config.yaml", "scheduler-config-tls.yaml", "rules.yaml"}
Object = dict[str, Any]


def objects(folder: str = "") -> list[Object]:
    """Return all objects in a folder's own files, read plainly."""
    files = sorted((DEPLOY / folder).glob("*.yaml"))
    return [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]


def only(kind: str, name: str, folder: str = "") -> Object:
    """Return the one object of this kind and name."""
    (found,) = (
        one for one in objects(folder) if one["kind"] == kind and one.get("metadata", {}).get("name") == name
    )
    return found


@cache
def applied(folder: str = "") -> tuple[Object, ...]:
    """Return the objects that `kubectl apply -k` makes of a folder, without the generated definitions."""
    listed = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["resources"]
    files = (DEPLOY / folder / name for name in listed if name.endswith(".yaml"))
    return tuple(one for file in files for one in yaml.safe_load_all(file.read_text()) if one)


def pod_templates(folder: str = "") -> list[Object]:
    """Return the pod templates that a folder applies."""
    kinds = ("DaemonSet", "Deployment", "StatefulSet")
    return [one["spec"]["template"] for one in applied(folder) if one["kind"] in kinds]


def selected(selector: Mapping[str, str], templates: list[Object]) -> list[Object]:
    """Return the pod templates that have all these labels."""
    return [one for one in templates if selector.items() <= one["metadata"]["labels"].items()]


def own_containers(folder: str) -> list[Object]:
    """Return the containers of Berth's own image."""
    containers = [one for template in pod_templates(folder) for one in template["spec"]["containers"]]
    return [one for one in containers if one["image"].startswith("berth-queue:")]


def controller_config() -> ControllerConfig:
    """Return the configuration that the controller is started with."""
    (text,) = only("ConfigMap", "berth-config")["data"].values()
    return load_config(text, source="berth-config")


def controller_arguments() -> argparse.Namespace:
    """Return the flags that the controller is started with."""
    (container,) = only("Deployment", SERVICE)["spec"]["template"]["spec"]["containers"]
    _, *command = container["command"]
    return make_parser(command).parse_args([*command, *container["args"]])


def ports_of(deployment: Object) -> dict[str, int]:
    """Return the ports of the only container by name."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def extender_config(name: str = "scheduler-config.yaml") -> Object:
    """Return the configuration of the extender in kube-scheduler."""
    config = yaml.safe_load((DEPLOY / "extender" / name).read_text())
    assert config["kind"] == "KubeSchedulerConfiguration"
    (extender,) = config["extenders"]
    return dict(extender)


def test_the_demo_applies_a_shipped_policy() -> None:
    assert demo_policy_text() == (DEPLOY / "policies" / "backfill.yaml").read_text(encoding="utf-8")


def test_the_shipped_policies_for_all_clusters_differ_only_in_how_they_use_run_times() -> None:
    recommended, backfill = (
        only("AdmissionPolicy", name, "policies")["spec"] for name in ("recommended", "backfill")
    )

    differing = {key for key in recommended | backfill if recommended.get(key) != backfill.get(key)}

    assert differing == {"precedence", "ordering", "backfill", "estimates"}
    assert recommended["precedence"] < backfill["precedence"] < 0


# --- all folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [*FOLDERS, "crds"])
def test_every_file_of_a_folder_is_applied(folder: str) -> None:
    there = {path.name for path in (DEPLOY / folder).glob("*.yaml")} - APART - {"kustomization.yaml"}
    listed = set(yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["resources"])

    assert there <= listed
    assert {name for name in listed if not name.endswith(".yaml")} == (
        set() if folder else {"crds", "integrations"}
    )


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        pytest.param(folder, one["metadata"]["name"], id=one["metadata"]["name"])
        for folder in FOLDERS
        for one in applied(folder)
        if one["kind"] == "Service"
    ],
)
def test_a_service_selects_pods_that_listen_on_its_ports(folder: str, name: str) -> None:
    spec = only("Service", name, folder)["spec"]

    found = selected(spec["selector"], pod_templates(folder))

    assert found, f"no pod of deploy/{folder} has the labels {spec['selector']}"
    for template in found:
        listening = {
            word
            for container in template["spec"]["containers"]
            for port in container["ports"]
            for word in (port["name"], port["containerPort"])
        }
        assert {port.get("targetPort", port["port"]) for port in spec["ports"]} <= listening


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "StatefulSet", "PodDisruptionBudget"])
def test_a_selector_of_pods_finds_those_of_its_folder(kind: str) -> None:
    found = [(folder, one) for folder in FOLDERS for one in applied(folder) if one["kind"] == kind]

    assert found
    for folder, one in found:
        templates = [one["spec"]["template"]] if "template" in one["spec"] else pod_templates(folder)
        assert selected(one["spec"]["selector"]["matchLabels"], templates), one["metadata"]["name"]


def test_prometheus_scrapes_the_controllers_service() -> None:
    (monitor,) = (one for one in applied("monitoring") if one["kind"] == "ServiceMonitor")
    spec = monitor["spec"]
    service = only("Service", SERVICE)

    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [one["port"] for one in spec["endpoints"]] == ["metrics"]


@pytest.mark.parametrize("folder", ["", "extender", "node-agent"])
def test_probes_ask_ports_that_the_container_names(folder: str) -> None:
    for template in pod_templates(folder):
        for container in template["spec"]["containers"]:
            probes = [container[word] for word in ("livenessProbe", "readinessProbe") if word in container]
            assert probes
            asked = {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe}
            assert asked <= {port["name"] for port in container["ports"]}


@pytest.mark.parametrize("folder", ["", "extender", "node-agent"])
def test_a_shipped_pod_has_no_privileges_and_writes_no_file_of_its_image(folder: str) -> None:
    """Pod Security "restricted", and a read-only root, which that does not ask for."""
    for spec in (template["spec"] for template in pod_templates(folder)):
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        # The kubelet's socket, which the node agent reads, belongs to root.
        assert spec["securityContext"].get("runAsNonRoot", False) == (folder != "node-agent")
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


# --- the controller ------------------------------------------------------------------------------


def test_the_controller_has_two_replicas_so_that_one_can_take_over() -> None:
    assert only("Deployment", SERVICE)["spec"]["replicas"] >= 2


def test_the_controller_and_its_redis_are_reached_from_other_pods() -> None:
    (container,) = only("Deployment", SERVICE)["spec"]["template"]["spec"]["containers"]
    arguments = make_parser(["controller"]).parse_args(["controller", *container["args"]])
    redis = urlsplit(arguments.redis)
    (service,) = (
        one for one in applied() if one["kind"] == "Service" and one["metadata"]["name"] == redis.hostname
    )

    assert not is_loopback(arguments.bind)
    assert [port["port"] for port in service["spec"]["ports"]] == [redis.port]


def test_the_controllers_service_leads_to_the_ports_it_listens_on() -> None:
    arguments = controller_arguments()
    ports = {
        name: getattr(arguments, f"{name}_port")
        for name in ("http", "metrics", "extender", "visibility", "webhook")
    }
    listening = {name: port for name, port in ports.items() if port >= 0}

    assert ports_of(only("Deployment", SERVICE)) == listening
    assert {port["name"]: port["port"] for port in only("Service", SERVICE)["spec"]["ports"]} == listening


def test_the_controller_is_read_by_tls_and_with_a_right_alone() -> None:
    (container,) = only("Deployment", SERVICE)["spec"]["template"]["spec"]["containers"]
    (monitor,) = (one for one in applied("monitoring") if one["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    arguments = controller_arguments()

    assert not arguments.insecure
    assert not is_loopback(arguments.bind)
    probes = [container[name]["httpGet"]["scheme"] for name in ("livenessProbe", "readinessProbe")]
    assert [*probes, endpoint["scheme"].upper()] == ["HTTPS"] * 3
    assert endpoint["tlsConfig"]["serverName"] == f"{SERVICE}.{NAMESPACE}.svc"
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": SECRET, "key": "ca.crt"}}
    given = {
        url: name
        for name in ("berth-metrics-reader", "berth-state-reader")
        for rule in only("ClusterRole", name)["rules"]
        for url in rule["nonResourceURLs"]
    }
    assert given == {"/metrics": "berth-metrics-reader", "/v1": "berth-state-reader"}


@pytest.mark.covers("001_37")
def test_the_controller_reads_a_configuration_that_it_understands() -> None:
    pod = only("Deployment", SERVICE)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (one for one in pod["volumes"] if "projected" in one)
    (folder,) = (arg.removeprefix("--config=") for arg in container["args"] if arg.startswith("--config="))
    own, topology = (one["configMap"] for one in volume["projected"]["sources"])
    config = load_config(only("ConfigMap", own["name"])["data"]["config.yaml"], source=folder)

    assert {"name": volume["name"], "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    assert (*config.warnings, *config.unused()) == ()
    # Without it the controller starts as well.
    assert topology["optional"]


@pytest.mark.covers("002_16")
def test_the_topology_schedulers_config_map_is_read_once_it_is_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = only("Deployment", SERVICE)["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if "projected" in one)
    shipped = only("ConfigMap", "topology-scheduler-config", "policies")
    assert shipped["metadata"]["namespace"] == NAMESPACE
    maps = {"berth-config": only("ConfigMap", "berth-config"), shipped["metadata"]["name"]: shipped}
    mount = tmp_path / "mount"
    mount.mkdir()
    # As the kubelet mounts them.
    for source in (one["configMap"] for one in volume["projected"]["sources"]):
        data = maps[source["name"]]["data"]
        for item in source.get("items") or [{"key": key, "path": key} for key in data]:
            (mount / item["path"]).write_text(data[item["key"]])

    found = read_config(mount)

    assert found.topology is not None
    policy = found.topology.to_policy()
    assert (policy.name, policy.reads_aliases) == ("topology-scheduler-config", True)
    assert (*found.warnings, *found.unused()) == ()
    (mount / "topology-scheduler-config.yaml").write_text("kind: Unknown")
    assert main(["decide", "-f", str(DEPLOY / "crds"), "--config", str(mount)]) == 2
    assert f"berth decide: {mount}" in capsys.readouterr().err


def test_the_controller_alone_reaches_redis_with_the_password_of_the_secret() -> None:
    pod = only("Deployment", SERVICE)["spec"]["template"]
    (container,), (redis,) = pod["spec"]["containers"], selected({"app": "berth-redis"}, pod_templates())
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    secret, tls = (one for one in pod["spec"]["volumes"] if "secret" in one)
    flags = dict(arg.split("=", 1) for arg in container["args"])
    policy = only("NetworkPolicy", "berth-redis")["spec"]

    assert flags["--redis-password-file"] == f"{mounts[secret['name']]}/password"
    assert flags["--store-key"] == f"{mounts[secret['name']]}/signing-key"
    assert [secret["secret"]["secretName"], tls["secret"]["secretName"]] == [
        one["secret"]["secretName"] for one in redis["spec"]["volumes"] if "secret" in one
    ]
    # Redis alone has the private key of its certificate.
    assert flags["--redis-ca"] == f"{mounts[tls['name']]}/ca.crt"
    assert tls["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert urlsplit(flags["--redis"]).scheme == "rediss"
    assert selected(policy["podSelector"]["matchLabels"], pod_templates()) == [redis]
    (rule,) = policy["ingress"]
    (source,) = rule["from"]
    assert selected(source["podSelector"]["matchLabels"], pod_templates()) == [pod]
    assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_the_controllers_replicas_are_spread_and_keep_away_from_redis() -> None:
    spec = only("Deployment", SERVICE)["spec"]["template"]["spec"]
    own, redis = (
        only(kind, name)["spec"]["template"]["metadata"]["labels"]
        for kind, name in (("Deployment", SERVICE), ("StatefulSet", "berth-redis"))
    )
    (apart,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert apart["podAffinityTerm"]["labelSelector"] == {"matchLabels": redis}
    # Preferred, so that one node is enough, and by revision, so that an update is spread as well.
    assert spec["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": own},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def test_a_drain_leaves_one_replica_of_the_controller() -> None:
    found = only("PodDisruptionBudget", SERVICE)["spec"]
    own = only("Deployment", SERVICE)["spec"]["template"]["metadata"]["labels"]

    # One that is not ready keeps no node from being drained.
    assert found == {
        "minAvailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": own},
    }


@pytest.mark.covers("002_27")
def test_the_controller_runs_under_its_own_account_with_no_role_but_its_own() -> None:
    pod = only("Deployment", SERVICE)["spec"]["template"]["spec"]
    account = only("ServiceAccount", pod["serviceAccountName"])["metadata"]["name"]
    bindings = [
        one
        for one in (*objects(), *objects("integrations"))
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding")
        and any(subject["name"] == account for subject in one["subjects"])
    ]

    roles = {
        (one["kind"], one["metadata"]["name"])
        for one in (*objects(), *objects("integrations"))
        if one["kind"] in ("Role", "ClusterRole") and one.get("rules")
    }
    assert {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings} == {
        role for role in roles if role[1].startswith(account)
    }


@pytest.mark.covers("003_19")
def test_the_controller_has_the_rights_that_it_uses_and_changes_nothing_else() -> None:
    settings = cluster_state_settings(controller_config(), namespace=NAMESPACE)
    used = rights.used_everywhere(settings)
    roles = [only("ClusterRole", SERVICE), *(one for one in objects("integrations") if "rules" in one)]
    everywhere = rights.granted(rule for role in roles for rule in role["rules"])
    at_home = rights.granted(only("Role", "berth-controller-leases")["rules"])

    assert sorted(used - everywhere) == []
    # A right to list includes the right to get each object.
    assert sorted(right for right in everywhere - used if right.verb != "get") == []
    assert at_home == rights.USED_AT_HOME


def test_each_integration_has_the_rights_that_it_asks_for_at_the_start() -> None:
    for one in INTEGRATIONS:
        documents = yaml.safe_load_all((DEPLOY / one.file).read_text())
        granted = rights.granted(
            rule
            for document in (*documents, only("ClusterRole", SERVICE))
            for rule in document.get("rules", ())
        )
        assert {rights.Right(one.kind.group, one.kind.plural, verb) for verb in one.verbs} <= granted, (
            one.file
        )


def test_the_flow_schema_is_for_what_the_election_asks_and_for_no_other_request() -> None:
    spec = only("FlowSchema", "berth-leader-election")["spec"]
    (rule,) = spec["rules"]
    (subject,), (asked,) = rule["subjects"], rule["resourceRules"]
    leases = only("Role", "berth-controller-leases")["rules"][0]

    assert subject["serviceAccount"] == {"name": SERVICE, "namespace": NAMESPACE}
    assert {key: asked[key] for key in leases} == leases
    assert asked["namespaces"] == [NAMESPACE]
    assert spec["priorityLevelConfiguration"]["name"] == "leader-election"


def test_rights_that_are_bound_to_names_are_for_its_kinds_and_what_leads_to_the_controller() -> None:
    bound: dict[tuple[str, str], set[str]] = {}
    for rule in only("ClusterRole", SERVICE)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"] if "resourceNames" in rule else ():
                bound.setdefault((group, resource), set()).update(rule["resourceNames"])

    assert bound == {
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {WEBHOOKS},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {WEBHOOKS},
        ("apiregistration.k8s.io", "apiservices"): {*API_SERVICES},
        ("apiextensions.k8s.io", "customresourcedefinitions"): {
            f"{kind.plural}.{kind.group}" for kind in KINDS
        },
    }


def test_the_controller_may_read_and_write_its_certificate_and_no_other_secret() -> None:
    rules = [
        rule
        for kind in ("Role", "ClusterRole")
        for role in objects()
        if role["kind"] == kind
        for rule in role.get("rules", ())
        if "secrets" in rule.get("resources", ())
    ]

    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        ([SECRET], ["get", "update"]),
    ]


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_webhooks_lead_to_the_controller(kind: str) -> None:
    port = {port["name"]: port["port"] for port in only("Service", SERVICE)["spec"]["ports"]}["webhook"]

    for webhook in only(kind, WEBHOOKS, "webhooks")["webhooks"]:
        service = webhook["clientConfig"]["service"]
        assert (service["name"], service["namespace"], service["port"]) == (SERVICE, "berth-system", port)
        assert service["path"] == ("/mutate" if kind.startswith("Mutating") else "/validate")
        assert webhook["failurePolicy"] == "Fail"


def test_the_controller_is_not_asked_about_its_own_writes() -> None:
    account = only("ServiceAccount", SERVICE)["metadata"]["name"]

    for webhook in only("ValidatingWebhookConfiguration", WEBHOOKS, "webhooks")["webhooks"]:
        if not webhook["name"].startswith("queues."):
            (condition,) = webhook["matchConditions"]
            assert f"system:serviceaccount:berth-system:{account}" in condition["expression"]


@pytest.mark.parametrize("name", API_SERVICES)
def test_the_visibility_api_leads_to_the_controller(name: str) -> None:
    spec = only("APIService", name, "visibility")["spec"]

    assert f"{spec['version']}.{spec['group']}" == name
    assert spec["service"] == {"name": SERVICE, "namespace": "berth-system", "port": 8082}


# --- the extender --------------------------------------------------------------------------------


@pytest.mark.covers("000_02")
def test_the_extenders_service_leads_from_port_80_to_8888() -> None:
    service = only("Service", "gpu-extender-svc", "extender")
    kustomization = yaml.safe_load((DEPLOY / "extender" / "kustomization.yaml").read_text())

    assert kustomization["namespace"] == "kube-system"
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(80, 8888)]
    assert make_parser(["extender"]).parse_args(["extender"]).port == 8888
    (template,) = selected(service["spec"]["selector"], pod_templates("extender"))
    assert template["spec"]["containers"][0]["command"] == ["berth", "extender"]
    assert ports_of(only("Deployment", "gpu-extender", "extender")) == {"extender": 8888}


def test_the_extender_listens_where_kube_scheduler_reaches_it() -> None:
    (container,) = only("Deployment", "gpu-extender", "extender")["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    arguments = make_parser(command).parse_args([*command, *container["args"]])

    assert program == "berth"
    assert not is_loopback(arguments.bind)
    assert arguments.port == 8888


@pytest.mark.covers("000_36")
def test_the_extender_has_two_replicas_of_which_one_always_stays() -> None:
    assert only("Deployment", "gpu-extender", "extender")["spec"]["replicas"] >= 2
    assert only("PodDisruptionBudget", "gpu-extender", "extender")["spec"]["minAvailable"] == 1


@pytest.mark.covers("000_37")
def test_the_image_is_built_in_stages_and_exposes_the_extender() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]

    (base,) = (line for line in lines if line.startswith("ARG PYTHON="))

    # One base for both, which a release names by its digest.
    assert stages == ["FROM ${PYTHON} AS build", "FROM ${PYTHON}"]
    assert "-slim" in base
    (exposed,) = (line for line in lines if line.startswith("EXPOSE "))
    assert "8888" in exposed.split()


@pytest.mark.covers("000_37")
def test_what_the_image_copies_is_enough_to_build_and_start_the_whole_package(tmp_path: Path) -> None:
    """The first stage without Docker: its files in a folder, and there its pip install."""
    build, _, _ = (DEPLOY / "Dockerfile").read_text().partition("\nFROM ${PYTHON}\n")
    source, installed = tmp_path / "src", tmp_path / "installed"
    for line in re.findall(r"^COPY (.*)$", build, flags=re.MULTILINE):
        *names, target = line.split()
        for name in names:
            copy(ROOT / name, source / target if (ROOT / name).is_dir() else source / target / name)
    (flags,) = re.findall(r"pip install (.*) \. &&", build)

    target = ["--target", str(installed), "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *flags.split(), *target, "."]
    subprocess.run(pip, cwd=source, check=True, timeout=300)

    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    for package in packages["include"]:
        assert modules(installed, package) == modules(ROOT, package)
    # What the licence asks of every copy.
    assert [*installed.glob("*.dist-info/**/LICENSE")]
    # The second is the same command, under the name by which kubectl finds a plugin.
    program, _ = sorted((installed / "bin").iterdir())
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    asked = [sys.executable, str(program), "version"]
    answer = subprocess.run(asked, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=60)
    assert b"berth" in answer.stdout.lower()


def test_the_builder_of_the_image_is_sent_what_it_copies_and_nothing_else() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = (ROOT / ".dockerignore").read_text().splitlines()

    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == set(" ".join(copied).split())


def test_the_image_installs_by_the_hashes_of_the_lock_from_which_its_bill_of_materials_is_made() -> None:
    locked, own = re.findall(
        r"pip install (.*?)(?: &&|$)", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    recipe = subprocess.run(
        ["make", "--dry-run", "--always-make", "sbom"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    (bill,) = (line.split() for line in recipe.splitlines() if "cyclonedx-py" in line)

    assert {"--require-hashes", "-r", "requirements.lock"} <= {*locked.split()}
    # Berth itself: nothing beside it is fetched, not even tools to build it.
    assert {"--no-deps", "--no-build-isolation", "."} <= {*own.split()}
    assert (bill[1], bill[-1]) == ("requirements", "requirements.lock")


@pytest.mark.parametrize("folder", ["", "extender", "node-agent"])
def test_one_line_of_a_kustomization_names_the_image_that_its_manifests_have(folder: str) -> None:
    (image,) = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["images"]

    assert {one["image"] for one in own_containers(folder)} == {f"{image['name']}:{image['newTag']}"}


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder as a build of the image does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def modules(root: Path, package: str) -> list[str]:
    """Return the files of the packages with this name (a pattern) below a folder."""
    return sorted(path.relative_to(root).as_posix() for path in root.glob(f"{package.strip('*')}/**/*.py"))


def test_the_image_starts_the_command_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (line,) = (
        line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT ")
    )

    programs = {
        container["command"][0]
        for folder in ("", "extender", "node-agent")
        for container in own_containers(folder)
    }
    assert programs == {*yaml.safe_load(line.removeprefix("ENTRYPOINT "))} == {*scripts} - {"kubectl-berth"}
    assert scripts["kubectl-berth"] == scripts["berth"]


@pytest.mark.covers("000_38")
def test_kube_scheduler_is_configured_for_the_extender_as_in_the_article() -> None:
    config = extender_config()

    assert config | {"nodeCacheCapable": True, "httpTimeout": "5s"} == config
    assert {key: config[key] for key in config if key not in ("nodeCacheCapable", "httpTimeout")} == {
        "urlPrefix": "http://gpu-extender-svc.kube-system.svc.cluster.local",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "enableHTTPS": False,
        "ignorable": False,
    }


@pytest.mark.covers("000_42")
def test_kube_scheduler_can_be_configured_to_use_tls() -> None:
    config, plain = extender_config("scheduler-config-tls.yaml"), extender_config()

    assert config["enableHTTPS"]
    assert config["urlPrefix"].startswith("https://")
    assert config["tlsConfig"]["caFile"]
    changed = {"enableHTTPS", "urlPrefix", "tlsConfig"}
    assert {key: value for key, value in config.items() if key not in changed} == {
        key: value for key, value in plain.items() if key not in changed
    }


def test_the_extender_is_called_by_kube_scheduler_alone_in_the_overlay_with_tls() -> None:
    overlay = yaml.safe_load((DEPLOY / "extender-tls" / "kustomization.yaml").read_text())
    (patch,) = overlay["patches"]
    spec = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    base = only("Deployment", "gpu-extender", "extender")
    (base_container,) = base["spec"]["template"]["spec"]["containers"]
    arguments = make_parser(["extender"]).parse_args(["extender", *container["args"]])

    assert overlay["resources"] == ["../extender"]
    assert patch["target"] == {"kind": base["kind"], "name": base["metadata"]["name"]}
    assert container["name"] == base_container["name"]
    assert set(base_container["args"]) < set(container["args"])
    files = (arguments.tls_certificate, arguments.tls_key, arguments.client_ca)
    assert {file.rpartition("/")[0] for file in files} == {container["volumeMounts"][0]["mountPath"]}
    assert {file.rpartition("/")[2] for file in files} == {"tls.crt", "tls.key", "ca.crt"}
    tls = extender_config("scheduler-config-tls.yaml")["tlsConfig"]
    assert {"certFile", "keyFile"} <= tls.keys()


@pytest.mark.covers("000_42")
def test_the_overlay_for_cert_manager_issues_what_the_extender_and_kube_scheduler_present() -> None:
    overlay = yaml.safe_load((DEPLOY / "extender-cert-manager" / "kustomization.yaml").read_text())
    tls = extender_config("scheduler-config-tls.yaml")
    host = urlsplit(tls["urlPrefix"]).hostname
    patched = yaml.safe_load((DEPLOY / "extender-tls" / "kustomization.yaml").read_text())["patches"][0]
    (volume,) = yaml.safe_load(patched["patch"])["spec"]["template"]["spec"]["volumes"]

    assert overlay["resources"] == ["../extender-tls", "certificates.yaml"]
    serving = only("Certificate", "gpu-extender", "extender-cert-manager")["spec"]
    assert serving["secretName"] == volume["secret"]["secretName"]
    assert host in serving["dnsNames"]
    client = only("Certificate", "gpu-extender-client", "extender-cert-manager")["spec"]
    assert client["commonName"] == KUBE_SCHEDULER
    # Both of one authority: ca.crt of the Secret is that of the other side too.
    authority = only("Issuer", serving["issuerRef"]["name"], "extender-cert-manager")["spec"]["ca"]
    assert client["issuerRef"] == serving["issuerRef"]
    made = only("Certificate", "gpu-extender-ca", "extender-cert-manager")["spec"]
    assert (made["isCA"], made["secretName"]) == (True, authority["secretName"])
    assert all(one["renewBefore"] for one in (serving, client))


# --- the script that installs --------------------------------------------------------------------

# Writes down how it was called, and keeps the files of Secrets; these are there if the file `secret` is.
_KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$PLACE/calls"
for word in "$@"; do
  case $word in
    --from-file=*) file=${word#--from-file=}; cp "${file#*=}" "$PLACE/$(basename "${file%%=*}")" ;;
  esac
done
case "$*" in *"get secret"*) test -e "$PLACE/secret";; esac
"""


def install(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run deploy/install.sh with a kubectl that does nothing; return how it ended, and what it called."""
    program = folder / "kubectl"
    program.write_text(_KUBECTL)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PLACE": str(folder)}
    command = ["sh", str(DEPLOY / "install.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.covers("002_27")
def test_the_script_applies_makes_the_secret_and_waits(tmp_path: Path) -> None:
    done, calls = install(tmp_path, "--image", "registry/berth:1")

    assert done.returncode == 0, done.stderr
    kinds = [" ".join(call.removeprefix(f"-n {NAMESPACE} ").split()[:3]) for call in calls]
    assert kinds == [
        "apply -k .",
        "get secret berth-redis",
        "create secret generic",
        "get secret berth-redis-tls",
        "create secret generic",
        f"set image deployment/{SERVICE}",
        "rollout status statefulset/berth-redis",
        f"rollout status deployment/{SERVICE}",
    ]
    (container, *_) = own_containers("")
    assert calls[5].endswith(f" {container['name']}=registry/berth:1")
    assert re.search(r"password=[0-9a-f]{64} --from-literal=signing-key=[0-9a-f]{64}", calls[2])
    # The private key is left nowhere.
    (made,) = {str(Path(file).parent) for file in re.findall(r"--from-file=(/\S+)", calls[4])}
    assert not Path(made).exists()


def test_the_script_keeps_a_secret_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()

    _, calls = install(tmp_path, "--no-wait")

    assert [call for call in calls if "create secret" in call or "rollout" in call] == []


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("rand", [], id="no Secret, as a password could be empty"),
        pytest.param("req", ["berth-redis"], id="no Secret of a certificate"),
    ],
)
def test_without_a_working_openssl_the_script_makes(tmp_path: Path, command: str, want: list[str]) -> None:
    openssl = tmp_path / "openssl"
    openssl.write_text(
        f'#!/bin/sh\n[ "$1" = {command} ] || exec true\necho "openssl is broken" >&2\nexit 1\n'
    )
    openssl.chmod(0o755)

    done, calls = install(tmp_path, "--no-wait")

    assert [call.split()[5] for call in calls if "create secret" in call] == want
    assert done.returncode != 0
    assert "openssl is broken" in done.stderr


@pytest.mark.parametrize("arguments", [["--images"], ["--image"]], ids=["unknown", "without its value"])
def test_the_script_refuses_wrong_arguments_before_it_changes_anything(
    tmp_path: Path, arguments: list[str]
) -> None:
    done, calls = install(tmp_path, *arguments)

    assert (done.returncode, calls) == (2, [])
    assert "--image" in done.stderr


@pytest.mark.covers("000_43")
def test_the_extender_may_read_nodes_and_pods_and_nothing_else() -> None:
    rules = [rule for one in objects("extender") for rule in one.get("rules", [])]

    assert rules == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.covers("000_44")
def test_kube_schedulers_configuration_elects_a_leader() -> None:
    config = yaml.safe_load((DEPLOY / "extender" / "scheduler-config.yaml").read_text())

    assert config["leaderElection"] == {"leaderElect": True}


# --- the node agent ------------------------------------------------------------------------------


def test_the_node_agent_is_started_on_the_port_of_its_probes_with_the_kubelets_socket() -> None:
    spec = only("DaemonSet", "berth-node-agent", "node-agent")["spec"]["template"]["spec"]
    (container,), (volume,) = spec["containers"], spec["volumes"]
    _, *command = container["command"]
    arguments = make_parser(command).parse_args([*command, *container["args"]])
    (mount,) = container["volumeMounts"]

    assert ports_of(only("DaemonSet", "berth-node-agent", "node-agent")) == {"health": arguments.port}
    assert not is_loopback(arguments.bind)
    assert volume["hostPath"]["path"] == mount["mountPath"] == arguments.kubelet_socket.rpartition("/")[0]
    assert mount["readOnly"]
    node = {one["name"]: one.get("valueFrom") for one in container["env"]}["NODE_NAME"]
    assert node == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_policies_of_the_node_agent_allow_what_it_writes_and_concern_its_account_alone() -> None:
    policies = [one for one in applied("node-agent") if one["kind"] == "ValidatingAdmissionPolicy"]
    account = only("ServiceAccount", "berth-node-agent", "node-agent")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    (own,) = (
        variable["expression"]
        for policy in policies
        for variable in policy["spec"]["variables"]
        if variable["name"] == "ownLabels"
    )

    written = {
        *(key for machine in ("nvswitch", "nvl72") for key in labels_of(machine)),
        keys.NODE_NUMA_NODE,
    }
    islands = {key for key in written if key.startswith(keys.NODE_ISLAND_PREFIX)}
    assert {*yaml.safe_load(own)} == written - islands
    assert len(policies) == 2
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == f"request.userInfo.username == '{user}'"
