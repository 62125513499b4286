"""The embedded API server is held to the real one: the same random writes to both, everything compared.

Three managers apply, force, patch in four ways, replace and delete Jobs, Pods, ConfigMaps and objects of a
custom kind. After each step the answers and the stored objects must be the same, the owners of all fields
included. What may differ is listed in `DIFFERENCES`, each with its reason; nothing else is forgiven.

BERTH_SEED=7 BERTH_STEPS=5000 python -m pytest tests/integration/test_embedded_against_real.py  looks further.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from tests.api.kube.embedded.conftest import define, embedded_api, real_api
from tests.api.kube.embedded.raw import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Answer,
    JsonObject,
    RawApi,
    definition,
)
from tests.controlplane import ControlPlane

SEED = int(os.environ.get("BERTH_SEED", "1"))
STEPS = int(os.environ.get("BERTH_STEPS", "400"))
MANAGERS = ("alice", "bob", "carol")
# Differences that are shown when the test fails. The first are the ones to look at.
SHOWN = 5

THING = "apis/diff.berth.dev/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request, to be sent to both servers."""

    method: str
    path: str
    body: object = None
    content_type: str = "application/json"
    params: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        params = " ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.method} {self.path} {params} {self.content_type}\n    {json.dumps(self.body)}"


def crd() -> JsonObject:
    """Return a custom kind with every form of list and map that fields can be owned in."""
    text, number = {"type": "string"}, {"type": "integer"}
    named = {"type": "object", "required": ["name"], "properties": {"name": text, "v": number, "w": number}}
    condition = {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}}
    spec = {
        "a": number,
        "b": text | {"default": "dflt"},
        "free": {"type": "object", "additionalProperties": text},
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"x": number, "y": number},
        },
        "numbers": {"type": "array", "items": number},
        "words": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": named,
        },
        "deep": {
            "type": "object",
            "properties": {"p": number, "q": {"type": "object", "properties": {"r": text}}},
        },
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    status = {
        "phase": text,
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": condition,
        },
    }
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }
    return definition("things", "Thing", properties, group="diff.berth.dev")


class Writers:
    """Draws random writes. The same seed draws the same ones."""

    def __init__(self, api: RawApi, seed: int) -> None:
        self._api = api
        self._random = random.Random(seed)

    def steps(self, count: int) -> Iterator[Step]:
        """Yield `count` writes."""
        for _ in range(count):
            draw = self._random.choice([self._thing, self._thing, self._job, self._pod, self._config_map])
            yield draw(self._manager())

    def _manager(self) -> dict[str, str]:
        return {"fieldManager": self._random.choice(MANAGERS)}

    def _some(self, choices: Mapping[str, Callable[[], object]], share: float = 0.5) -> JsonObject:
        return {key: draw() for key, draw in choices.items() if self._random.random() < share}

    def _pick(self, *choices: object) -> object:
        return self._random.choice(choices)

    def _map(self, keys: str, values: str) -> dict[str, str]:
        chosen = self._random.sample(keys, self._random.randint(0, len(keys)))
        return {key: self._random.choice(values) for key in chosen}

    def _force(self, params: Mapping[str, str]) -> dict[str, str]:
        return {**params, "force": "true"} if self._random.random() < 0.4 else dict(params)

    def _metadata(self, name: str) -> JsonObject:
        return {
            "name": name,
            **self._some(
                {"labels": lambda: self._map("kl", "12"), "annotations": lambda: self._map("mn", "12")}, 0.3
            ),
        }

    # The custom kind

    def _thing(self, params: Mapping[str, str]) -> Step:
        name = f"t{self._random.randint(0, 3)}"
        path = self._api.path("things", name, api=THING)
        head = {"apiVersion": "diff.berth.dev/v1", "kind": "Thing"}
        match self._random.randint(0, 11):
            case 0 | 1 | 2 | 3:
                body = {**head, "metadata": self._metadata(name), "spec": self._thing_spec()}
                return self._applied(path, body, params)
            case 4 | 5:
                patch = {key: self._pick(value, value, None) for key, value in self._thing_spec().items()}
                return self._merged(path, {"metadata": self._metadata(name), "spec": patch}, params)
            case 6:
                body = {**head, "metadata": {"name": name}, "status": self._thing_status()}
                return self._applied(f"{path}/status", body, params)
            case 7:
                return self._merged(f"{path}/status", {"status": self._thing_status()}, params)
            case 8:
                return self._operations(path, params)
            case 9:
                body = {**head, "metadata": self._metadata(name), "spec": self._thing_spec()}
                return Step(method="POST", path=self._api.path("things", api=THING), body=body, params=params)
            case 10:
                body = {**head, "metadata": self._metadata(name), "spec": {"a": "wrong", "b": 1}}
                return self._applied(path, body, params)
            case _:
                return Step(method="DELETE", path=path)

    def _thing_spec(self) -> JsonObject:
        return self._some(
            {
                "a": lambda: self._random.randint(0, 2),
                "b": lambda: self._random.choice("xyz"),
                "free": lambda: self._map("pqr", "12"),
                "whole": lambda: self._some({"x": lambda: 1, "y": lambda: self._random.randint(0, 1)}),
                "numbers": lambda: [self._random.randint(0, 2) for _ in range(self._random.randint(0, 2))],
                "words": lambda: self._random.sample(["u", "v", "w"], self._random.randint(0, 3)),
                "items": self._items,
                "deep": lambda: self._some({"p": lambda: 1, "q": lambda: {"r": self._random.choice("xy")}}),
                "any": lambda: self._some({"n": lambda: 1, "m": lambda: {"o": [1]}, "z": list}),
            },
            0.4,
        )

    def _items(self) -> list[JsonObject]:
        names = self._random.sample("abc", self._random.randint(0, 3))
        return [
            {"name": name, **self._some({"v": lambda: self._random.randint(0, 1), "w": lambda: 1})}
            for name in names
        ]

    def _thing_status(self) -> JsonObject:
        return self._some(
            {
                "phase": lambda: self._random.choice("AB"),
                "conditions": lambda: [
                    {"type": type_, "status": self._random.choice(["True", "False"])}
                    for type_ in self._random.sample(["X", "Y"], self._random.randint(0, 2))
                ],
            },
            0.7,
        )

    def _operations(self, path: str, params: Mapping[str, str]) -> Step:
        operations = self._random.choices(
            [
                {"op": "replace", "path": "/spec/b", "value": "x"},
                {"op": "add", "path": "/spec/a", "value": 2},
                {"op": "remove", "path": "/spec/items/0"},
                {"op": "add", "path": "/spec/numbers/-", "value": 1},
                {"op": "test", "path": "/spec/a", "value": 1},
                {"op": "move", "from": "/spec/a", "path": "/spec/deep/p"},
                {"op": "copy", "from": "/spec/b", "path": "/metadata/labels/b"},
                {"op": "add", "path": "/metadata/labels", "value": {"all": "new"}},
            ],
            k=self._random.randint(1, 2),
        )
        return Step(method="PATCH", path=path, body=operations, content_type=JSON_PATCH, params=params)

    # Jobs

    def _job(self, params: Mapping[str, str]) -> Step:
        name = f"j{self._random.randint(0, 2)}"
        path = self._api.jobs(name)
        match self._random.randint(0, 10):
            case 0 | 1 | 2:
                return self._applied(path, self._job_body(name), params)
            case 3 | 4:
                return self._merged(path, {"spec": self._job_change()}, params)
            case 5 | 6:
                patch = {"metadata": self._metadata(name), "spec": self._job_change()}
                return Step(method="PATCH", path=path, body=patch, content_type=STRATEGIC, params=params)
            case 7:
                return Step(method="POST", path=self._api.jobs(), body=self._job_body(name), params=params)
            case 8:
                return Step(method="PUT", path=path, body=self._job_body(name), params=params)
            case 9:
                return self._merged(f"{path}/status", {"status": self._job_status()}, params)
            case _:
                return Step(method="DELETE", path=path, params={"propagationPolicy": "Background"})

    def _job_body(self, name: str) -> JsonObject:
        spec = self._some(
            {
                "suspend": lambda: self._pick(True, True, False),
                "parallelism": lambda: self._random.randint(0, 3),
                "completions": lambda: self._random.randint(1, 3),
                "backoffLimit": lambda: self._random.randint(-1, 3),
                "completionMode": lambda: self._pick("Indexed", "NonIndexed", "NonIndexed", "Odd"),
            }
        )
        template = {
            "metadata": self._some({"labels": lambda: self._map("ab", "12")}),
            "spec": self._pod_spec(),
        }
        template["spec"]["restartPolicy"] = self._pick("Never", "Never", "Never", "OnFailure", "Always")
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(name),
            "spec": {**spec, "template": template},
        }

    def _job_change(self) -> JsonObject:
        template = self._some(
            {
                "nodeSelector": lambda: self._map("rs", "12"),
                "tolerations": self._tolerations,
                "containers": lambda: [self._container("c")],
                "schedulingGates": lambda: [{"name": "diff.berth.dev/gate"}],
                "priorityClassName": lambda: self._pick(None, "system-node-critical"),
            },
            0.25,
        )
        change = self._some(
            {
                "suspend": lambda: self._pick(True, False),
                "parallelism": lambda: self._random.randint(0, 4),
                "completions": lambda: self._random.randint(1, 3),
                "ttlSecondsAfterFinished": lambda: self._pick(None, 60),
            },
            0.4,
        )
        return {**change, **({"template": {"spec": template}} if template else {})}

    def _job_status(self) -> JsonObject:
        when = "2026-01-01T00:00:00Z"
        types = ("Suspended", "FailureTarget", "Failed", "SuccessCriteriaMet", "Complete")
        return self._some(
            {
                "active": lambda: self._random.randint(0, 1),
                "failed": lambda: self._random.randint(0, 2),
                "startTime": lambda: self._pick(when, None),
                "conditions": lambda: [
                    {"type": type_, "status": "True", "lastTransitionTime": when}
                    for type_ in types
                    if self._random.random() < 0.25
                ],
            },
            0.4,
        )

    # Pods

    def _pod(self, params: Mapping[str, str]) -> Step:
        name = f"p{self._random.randint(0, 2)}"
        path = self._api.path("pods", name)
        match self._random.randint(0, 10):
            case 0 | 1 | 2:
                return self._applied(path, self._pod_body(name), params)
            case 3:
                return Step(
                    method="POST", path=self._api.path("pods"), body=self._pod_body(name), params=params
                )
            case 4 | 5:
                return self._merged(path, {"spec": self._pod_change()}, params)
            case 6:
                patch = {"metadata": self._metadata(name), "spec": self._pod_change()}
                return Step(method="PATCH", path=path, body=patch, content_type=STRATEGIC, params=params)
            case 7 | 8:
                patch = {"status": self._pod_status()}
                return Step(
                    method="PATCH",
                    path=f"{path}/status",
                    body=patch,
                    content_type=self._random.choice((STRATEGIC, MERGE)),
                    params=params,
                )
            case 9:
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
                body = {**binding, "target": {"kind": "Node", "name": "n1"}}
                return Step(method="POST", path=f"{path}/binding", body=body)
            case _:
                return Step(method="DELETE", path=path, params={"gracePeriodSeconds": "0"})

    def _pod_body(self, name: str) -> JsonObject:
        spec = self._pod_spec()
        spec.update(self._some({"restartPolicy": lambda: self._pick("Never", "Always", "Odd")}, 0.3))
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name), "spec": spec}

    def _pod_spec(self) -> JsonObject:
        names = self._random.choice(["c", "c", "c", "cd", "dc"])
        spec = self._some(
            {
                "nodeSelector": lambda: self._map("rs", "12"),
                "schedulingGates": lambda: [{"name": "diff.berth.dev/gate"}],
                "priorityClassName": lambda: "system-node-critical",
                "terminationGracePeriodSeconds": lambda: self._random.choice([0, 5]),
                "hostNetwork": lambda: False,
                "volumes": lambda: [{"name": "v"}, {"name": "m", "configMap": {"name": "x"}}],
            },
            0.25,
        )
        return {**spec, "containers": [self._container(name) for name in names]}

    def _container(self, name: str) -> JsonObject:
        amounts = ("1", "500m", "1000m", "0.5", "2Gi", "1024Mi", "1e3")
        return {
            "name": name,
            "image": self._random.choice(["busybox", "busybox:1.36", "reg:5000/a/b"]),
            **self._some(
                {
                    "args": lambda: ["x"],
                    "env": lambda: [{"name": key, "value": "1"} for key in self._random.sample("EF", 2)],
                    "ports": lambda: [{"containerPort": self._random.choice([80, 81])}],
                    "resources": lambda: {
                        kind: {key: self._random.choice(amounts) for key in ("cpu", "memory")}
                        for kind in self._random.choice([("requests",), ("limits",), ("requests", "limits")])
                    },
                },
                0.4,
            ),
        }

    def _tolerations(self) -> list[JsonObject]:
        keys = self._random.sample("xy", self._random.randint(0, 2))
        return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]

    def _pod_change(self) -> JsonObject:
        return self._some(
            {
                "nodeSelector": lambda: self._map("rs", "12") or None,
                "schedulingGates": lambda: None,
                "activeDeadlineSeconds": lambda: self._random.choice([10, 20]),
                "terminationGracePeriodSeconds": lambda: 7,
            },
            0.4,
        )

    def _pod_status(self) -> JsonObject:
        when = "2026-01-01T00:00:00Z"
        return self._some(
            {
                "phase": lambda: self._pick("Pending", "Running", "Succeeded"),
                "podIP": lambda: self._pick("10.0.0.1", "10.0.0.2"),
                "message": lambda: self._pick("", "so"),
                "conditions": lambda: [
                    {
                        "type": type_,
                        "status": self._random.choice(["True", "False"]),
                        "lastTransitionTime": when,
                    }
                    for type_ in self._random.sample(["Ready", "Other"], self._random.randint(1, 2))
                ],
            },
            0.5,
        )

    # ConfigMaps

    def _config_map(self, params: Mapping[str, str]) -> Step:
        name = f"c{self._random.randint(0, 2)}"
        path = self._api.path("configmaps", name)
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._metadata(name),
            "data": self._map("defg", "123"),
        }
        match self._random.randint(0, 6):
            case 0 | 1:
                return self._applied(path, body, params)
            case 2:
                data = {key: self._pick(value, None) for key, value in self._map("defg", "123").items()}
                return self._merged(path, {"metadata": self._metadata(name), "data": data}, params)
            case 3:
                data = {key: self._pick(value, None) for key, value in self._map("defg", "123").items()}
                return Step(
                    method="PATCH", path=path, body={"data": data}, content_type=STRATEGIC, params=params
                )
            case 4:
                return Step(method="PUT", path=path, body=body, params=params)
            case 5:
                body["metadata"]["name"] = self._pick(name, name, "Wrong_Name")
                body["metadata"]["labels"] = self._pick({}, {"a": "b c"}, {"a/b/c": "d"})
                return Step(method="POST", path=self._api.path("configmaps"), body=body, params=params)
            case _:
                return Step(method="DELETE", path=path)

    def _applied(self, path: str, body: JsonObject, params: Mapping[str, str]) -> Step:
        return Step(method="PATCH", path=path, body=body, content_type=APPLY, params=self._force(params))

    def _merged(self, path: str, body: JsonObject, params: Mapping[str, str]) -> Step:
        return Step(method="PATCH", path=path, body=body, content_type=MERGE, params=params)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which the servers may differ, why, and how it is recognized."""

    reason: str
    holds: Callable[[Step, Answer, Answer], bool]


def _trips_over_its_own_null(step: Step, ours: Answer, real: Answer) -> bool:
    causes = (real.body.get("details") or {}).get("causes") or ()
    is_only_null = real.status == 422 and all('"null"' in cause["message"] for cause in causes)
    return step.content_type == APPLY and ours.status == 200 and is_only_null


DIFFERENCES: Sequence[Difference] = (
    Difference(
        "An empty map or list is applied over one that the same manager had filled: the real server makes it "
        "null on the way and then, on custom kinds, refuses that null. Here null is as good as absent.",
        _trips_over_its_own_null,
    ),
)


def comparable(answer: Answer) -> JsonObject:
    """Return an answer without what no two servers share: uids, versions and times."""
    body = answer.body
    if body.get("kind") == "Status":
        # The real server reports a fault as often as one of its checks meets it.
        causes = sorted(
            {
                (cause.get("reason", ""), cause.get("field", ""))
                for cause in (body.get("details") or {}).get("causes") or ()
            }
        )
        return {"status": answer.status, "reason": body.get("reason"), "causes": causes}
    text = json.dumps(body, sort_keys=True).replace(body["metadata"]["uid"], "UID")
    item = json.loads(text)
    metadata = item["metadata"]
    for key in ("resourceVersion", "creationTimestamp", "deletionTimestamp"):
        metadata.pop(key, None)
    entries = metadata.pop("managedFields", [])
    for entry in entries:
        entry.pop("time", None)
    metadata["managedFields"] = sorted(entries, key=lambda each: json.dumps(each, sort_keys=True))
    # The control plane of the tests evicts pods from lost nodes sooner than the default of 300 s.
    for toleration in item.get("spec", {}).get("tolerations", ()):
        toleration.pop("tolerationSeconds", None)
    for condition in item.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled":
            condition.pop("lastTransitionTime", None)
    return {"status": answer.status, "item": item}


@pytest.mark.timeout(600)
async def test_the_same_writes_lead_to_the_same_objects(fresh_control_plane: ControlPlane) -> None:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(embedded_api())
        real = await stack.enter_async_context(real_api(fresh_control_plane))
        ours.namespace = real.namespace
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": real.namespace}}
        await ours.create("/api/v1/namespaces", space)
        for api in (ours, real):
            await define(api, crd())

        differences = [
            found
            for number, step in enumerate(Writers(ours, SEED).steps(STEPS))
            for found in [await difference(number, step, ours, real)]
            if found
        ]

    assert not differences, f"{len(differences)} of {STEPS} steps differ\n" + "\n".join(differences[:SHOWN])


async def difference(number: int, step: Step, ours: RawApi, real: RawApi) -> str:
    """Send one step to both servers; return what differs, or ""."""
    answers = [await send(api, step) for api in (ours, real)]
    compared = [comparable(answer) for answer in answers]
    stored = [comparable(await api.get(object_path(step))) for api in (ours, real)]
    if compared[0] == compared[1] and stored[0] == stored[1]:
        return ""
    # From here on the object would differ for ever: it is created again.
    for api in (ours, real):
        await api.call("DELETE", object_path(step), propagationPolicy="Background", gracePeriodSeconds="0")
    if any(known.holds(step, *answers) for known in DIFFERENCES):
        return ""
    lines = [f"step {number}: {step}"]
    for title, (one, other) in (("answers", compared), ("keeps", stored)):
        lines += [f"  {title} {line}" for line in differing(one, other)]
    lines += [
        f"  {name}: {answer.message[:300]}" for name, answer in zip(("ours", "real"), answers, strict=True)
    ]
    return "\n".join(lines)


def differing(ours: object, real: object, path: str = "") -> Iterator[str]:
    """Yield every place in which two JSON values differ."""
    if isinstance(ours, dict) and isinstance(real, dict):
        for key in sorted(ours.keys() | real.keys()):
            yield from differing(ours.get(key), real.get(key), f"{path}.{key}")
    elif ours != real:
        yield f"{path}: ours {json.dumps(ours)[:200]}, real {json.dumps(real)[:200]}"


async def send(api: RawApi, step: Step) -> Answer:
    return await api.call(
        step.method, step.path, step.body, content_type=step.content_type, **dict(step.params)
    )


def object_path(step: Step) -> str:
    path = step.path.removesuffix("/status").removesuffix("/binding")
    if step.method == "POST" and step.path == path:
        assert isinstance(step.body, dict)
        return f"{path}/{step.body['metadata']['name']}"
    return path
