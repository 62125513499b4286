"""Certificates that replicas share, and where they publish their authority."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from admission.controller.http.ca_injector import DEFINITIONS, WEBHOOKS, TrustPublisher
from admission.controller.http.serving_certificates import SECRET, SERVICE, FileCertificates, OwnCertificates
from api.definitions.crds import KINDS, crd
from api.http.certificates import KeyPair, make_authority, make_leaf, names_of, renewal_at
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.resources import Resource
from tests.admission.controller.fakes import FakeClock
from tests.embedded import EmbeddedCluster

Object = dict[str, Any]
NAMESPACE = "default"
PATIENCE_SECONDS = 30.0


@pytest.fixture
async def client(embedded_server: EmbeddedCluster) -> AsyncIterator[KubeClient]:
    """Give a client of the embedded server."""
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        yield client


async def opened(client: KubeClient, clock: FakeClock | None = None, **given: Any) -> OwnCertificates:
    """Return the certificates of a replica that has started."""
    certificates = OwnCertificates(client, clock or FakeClock(), **{"namespace": NAMESPACE, **given})
    await certificates.open()
    return certificates


async def secret(client: KubeClient) -> dict[str, bytes]:
    """Return what the Secret holds."""
    found = json.loads(await client.get(resources.SECRETS, SECRET, NAMESPACE))
    assert found["type"] == "kubernetes.io/tls"
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


# --- a Secret of our own -------------------------------------------------------------------------


async def test_the_first_replica_writes_the_secret(client: KubeClient) -> None:
    certificates = await opened(client)

    held = await secret(client)
    assert certificates.trusted == held["ca.crt"]
    service = f"{SERVICE}.{NAMESPACE}"
    assert names_of(held["tls.crt"]) == {
        f"{service}.svc",
        f"{service}.svc.cluster.local",
        service,
        "localhost",
        "127.0.0.1",
        "::1",
    }


async def test_later_replicas_serve_what_the_first_wrote(client: KubeClient) -> None:
    first = await opened(client)
    before = await secret(client)
    second = await opened(client)

    assert await secret(client) == before
    assert second.trusted == first.trusted


async def test_replicas_that_start_together_agree(client: KubeClient) -> None:
    replicas = await asyncio.gather(*(opened(client) for _ in range(5)))

    held = await secret(client)
    assert {replica.trusted for replica in replicas} == {held["ca.crt"]}


async def test_an_address_of_its_own_is_added_and_kept_by_the_others(client: KubeClient) -> None:
    await opened(client, host="10.0.0.7")
    await opened(client)
    await opened(client, host="0.0.0.0")

    assert "10.0.0.7" in names_of((await secret(client))["tls.crt"])
    assert "0.0.0.0" not in names_of((await secret(client))["tls.crt"])


async def test_nothing_is_renewed_before_two_thirds_of_its_life(client: KubeClient) -> None:
    clock = FakeClock()
    certificates = await opened(client, clock)
    before = await secret(client)

    clock.at = renewal_at(before["tls.crt"]) - 60
    await certificates.look()

    assert await secret(client) == before


async def test_the_certificate_is_renewed_after_two_thirds_of_its_life(client: KubeClient) -> None:
    clock = FakeClock()
    certificates = await opened(client, clock)
    before = await secret(client)

    clock.at = renewal_at(before["tls.crt"])
    await certificates.look()

    after = await secret(client)
    assert after["tls.crt"] != before["tls.crt"]
    assert after["ca.crt"] == before["ca.crt"]


async def test_a_new_authority_is_reported(client: KubeClient) -> None:
    clock, renewals = FakeClock(), list[bool]()
    certificates = await opened(client, clock, on_renewed=lambda: renewals.append(True))
    before = await secret(client)

    clock.at = renewal_at(before["ca.crt"])
    await certificates.look()

    after = await secret(client)
    assert renewals == [True, True]
    assert after["ca.crt"] != before["ca.crt"]
    assert after["ca.crt"].endswith(before["ca.crt"]), "the former is trusted a while longer"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"tls.crt": "bm8=", "tls.key": "bm8=", "ca.crt": "bm8=", "ca.key": "bm8="}, id="no PEM"),
    ],
)
async def test_a_secret_that_cannot_be_used_is_written_again(
    client: KubeClient, data: dict[str, str]
) -> None:
    body = {"metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "data": data}
    if not data:
        body["data"] = {"tls.crt": "", "tls.key": ""}
    await client.create(resources.SECRETS, json.dumps(body).encode(), NAMESPACE)

    certificates = await opened(client)

    assert certificates.trusted == (await secret(client))["ca.crt"]


async def test_without_a_place_for_the_secret_the_certificate_is_this_process_s_alone(
    client: KubeClient,
) -> None:
    certificates = await opened(client, namespace="missing")

    assert certificates.trusted is None
    assert certificates.serving_tls().context.cert_store_stats() is not None


async def test_an_observer_writes_no_secret_and_serves_the_one_that_is_there(client: KubeClient) -> None:
    assert (await opened(client, may_write=False)).trusted is None

    first = await opened(client)
    assert (await opened(client, may_write=False)).trusted == first.trusted


# --- files ---------------------------------------------------------------------------------------


def write_pair(folder: Path, pair: KeyPair) -> FileCertificates:
    """Write certificate and key, and return what reads them."""
    folder.joinpath("tls.crt").write_bytes(pair.certificate)
    folder.joinpath("tls.key").write_bytes(pair.key)
    return FileCertificates(folder / "tls.crt", folder / "tls.key")


async def test_files_that_do_not_fit_are_reported_and_the_former_served_on(tmp_path: Path) -> None:
    authority = make_authority(now=1000.0)
    certificates = write_pair(tmp_path, make_leaf(authority, ["a"], now=1000.0))
    await certificates.open()

    tmp_path.joinpath("tls.key").write_bytes(authority.key)

    assert certificates.look().startswith("the certificate cannot be served")
    assert certificates.serving_tls()
    assert certificates.trusted is None, "their issuer publishes the authority"


# --- what kube-apiserver is to trust -------------------------------------------------------------


def configuration(kind: str, *urls: str, name: str = WEBHOOKS) -> Object:
    """Return a webhook configuration that leads to these addresses."""
    webhooks = [
        {
            "name": f"w{index}.berth.dev",
            "clientConfig": {"url": url},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for index, url in enumerate(urls)
    ]
    version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}


def api_service(namespace: str, name: str = SERVICE) -> Object:
    """Return the APIService of the visibility API, led to this Service."""
    spec = {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"namespace": namespace, "name": name, "port": 443},
    }
    metadata = {"name": "v1beta2.visibility.kueue.x-k8s.io"}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": metadata,
        "spec": spec,
    }


class Bundle:
    """What is to be trusted, and whether it was ever asked for."""

    def __init__(self) -> None:
        self.trusted: bytes | None = b"first"

    def __call__(self) -> bytes | None:
        return self.trusted


@pytest.fixture
async def bundle(client: KubeClient) -> AsyncIterator[tuple[Bundle, TrustPublisher]]:
    """Give a publisher that runs, and the bundle that it publishes."""
    bundle = Bundle()
    publisher = TrustPublisher(client, namespace=NAMESPACE, trusted=bundle)
    task = asyncio.create_task(publisher.run())
    yield bundle, publisher
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def reach(
    client: KubeClient, resource: Resource, name: str, bundles: Callable[[Object], list[str]], want: bytes
) -> None:
    """Wait until all bundles of the object are as wanted."""
    text = base64.b64encode(want).decode()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while set(bundles(json.loads(await client.get(resource, name)))) != {text}:
            await asyncio.sleep(0.02)


def of_webhooks(obj: Object) -> list[str]:
    return [webhook["clientConfig"].get("caBundle", "") for webhook in obj["webhooks"]]


def of_service(obj: Object) -> list[str]:
    return [obj["spec"].get("caBundle", "")]


@pytest.mark.parametrize("resource", [resources.VALIDATING_WEBHOOKS, resources.MUTATING_WEBHOOKS], ids=str)
async def test_a_webhook_configuration_gets_the_authority(
    client: KubeClient, bundle: tuple[Bundle, TrustPublisher], resource: Resource
) -> None:
    body = configuration(resource.kind, "https://127.0.0.1:1/validate", "https://127.0.0.1:1/other")
    await client.create(resource, json.dumps(body).encode())
    await reach(client, resource, WEBHOOKS, of_webhooks, b"first")

    source, publisher = bundle
    source.trusted = b"second"
    publisher.publish()
    await reach(client, resource, WEBHOOKS, of_webhooks, b"second")


async def test_a_bundle_that_was_overwritten_is_mended(
    client: KubeClient, bundle: tuple[Bundle, TrustPublisher]
) -> None:
    resource = resources.VALIDATING_WEBHOOKS
    body = configuration(resource.kind, "https://127.0.0.1:1/validate")
    await client.create(resource, json.dumps(body).encode())
    await reach(client, resource, WEBHOOKS, of_webhooks, b"first")

    found = json.loads(await client.get(resource, WEBHOOKS))
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    overwritten = {**body, "metadata": {**body["metadata"], **version}}
    await client.replace(resource, WEBHOOKS, json.dumps(overwritten).encode())

    await reach(client, resource, WEBHOOKS, of_webhooks, b"first")


async def test_an_api_service_that_leads_here_gets_the_authority(
    client: KubeClient, bundle: tuple[Bundle, TrustPublisher]
) -> None:
    body = api_service(NAMESPACE)
    await client.create(resources.API_SERVICES, json.dumps(body).encode())

    await reach(client, resources.API_SERVICES, body["metadata"]["name"], of_service, b"first")


async def test_a_definition_whose_objects_are_converted_here_gets_the_authority(
    client: KubeClient, bundle: tuple[Bundle, TrustPublisher]
) -> None:
    for name in DEFINITIONS:
        await client.create(resources.CRDS, json.dumps(definition(name, NAMESPACE)).encode())

    for name in DEFINITIONS:
        await reach(client, resources.CRDS, name, of_definition, b"first")


def definition(name: str, namespace: str) -> Object:
    """Return one of the shipped definitions, converted by the controller of a namespace."""
    (kind,) = (kind for kind in KINDS if f"{kind.plural}.{kind.group}" == name)
    found = copy.deepcopy(crd(kind, with_older=True))
    found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] = namespace
    return found


def of_definition(obj: Object) -> list[str]:
    return [obj["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", "")]


async def test_what_leads_elsewhere_is_left_alone(
    client: KubeClient, bundle: tuple[Bundle, TrustPublisher]
) -> None:
    kueues = api_service("kueue-system", "kueue-visibility-server")
    other = configuration("ValidatingWebhookConfiguration", "https://127.0.0.1:1/", name="kueue-validating")
    await client.create(resources.API_SERVICES, json.dumps(kueues).encode())
    await client.create(resources.VALIDATING_WEBHOOKS, json.dumps(other).encode())
    await client.create(resources.CRDS, json.dumps(definition(DEFINITIONS[0], "kueue-system")).encode())
    ours = configuration("MutatingWebhookConfiguration", "https://127.0.0.1:1/mutate")
    await client.create(resources.MUTATING_WEBHOOKS, json.dumps(ours).encode())
    await reach(client, resources.MUTATING_WEBHOOKS, WEBHOOKS, of_webhooks, b"first")

    service = json.loads(await client.get(resources.API_SERVICES, kueues["metadata"]["name"]))
    webhooks = json.loads(await client.get(resources.VALIDATING_WEBHOOKS, "kueue-validating"))
    queues = json.loads(await client.get(resources.CRDS, DEFINITIONS[0]))
    assert (of_service(service), of_webhooks(webhooks), of_definition(queues)) == ([""], [""], [""])
