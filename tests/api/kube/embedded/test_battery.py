"""The features of an API server that a controller needs, tested on the embedded and on the real one.

Each expectation holds on kube-apiserver 1.36; where the two may differ, the test says so.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .conftest import CRDS, WORKLOADS, define
from .raw import JSON_PATCH, STRATEGIC, RawApi, config_map, definition, job, pod


def workload(name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "battery.berth.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": spec,
    }


# Objects and their versions


async def test_creating_sets_what_the_system_knows(api: RawApi) -> None:
    made = await api.create(api.jobs(), job("j"))

    metadata = made["metadata"]
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["generation"] == 1
    assert metadata["namespace"] == api.namespace


async def test_a_name_is_generated(api: RawApi) -> None:
    body = job("x")
    body["metadata"] = {"generateName": "made-"}

    names = {(await api.create(api.jobs(), body))["metadata"]["name"] for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


async def test_a_taken_name_is_a_conflict_of_its_own_kind(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    answer = await api.call("POST", api.jobs(), job("j"))

    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'jobs.batch "j" already exists'


async def test_a_missing_object_is_not_found(api: RawApi) -> None:
    answer = await api.get(api.jobs("nope"))

    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.body["details"] == {"name": "nope", "group": "batch", "kind": "jobs"}


async def test_nothing_is_created_in_a_namespace_that_is_not_there(api: RawApi) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("c"))

    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


async def test_a_dry_run_shows_the_object_and_keeps_nothing(api: RawApi) -> None:
    answer = await api.call("POST", api.jobs(), job("dry"), dryRun="All")

    assert answer.status == 201
    assert answer.metadata["uid"]
    assert (await api.get(api.jobs("dry"))).status == 404


# Lists


async def test_a_list_carries_a_version_to_watch_from(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    answer = await api.get(api.jobs())

    assert answer.body["kind"] == "JobList"
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["j"]
    assert int(answer.metadata["resourceVersion"]) > 0


async def test_labels_select(api: RawApi) -> None:
    for name, labels in (("a", {"team": "red"}), ("b", {"team": "blue"}), ("c", {"team": "red", "old": "1"})):
        await api.create(api.path("configmaps"), config_map(name, labels))

    async def names(selector: str) -> list[str]:
        answer = await api.get(api.path("configmaps"), labelSelector=selector)
        return [
            item["metadata"]["name"]
            for item in answer.body["items"]
            if item["metadata"]["name"] != "kube-root-ca.crt"
        ]

    assert await names("team=red") == ["a", "c"]
    assert await names("team==red,!old") == ["a"]
    assert await names("team in (red,blue),!old") == ["a", "b"]
    assert await names("team notin (red)") == ["b"]
    assert await names("team!=red") == ["b"]
    assert await names("old") == ["c"]


async def test_an_unreadable_selector_is_a_bad_request(api: RawApi) -> None:
    answer = await api.get(api.path("configmaps"), labelSelector="a in (b")

    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_fields_select(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("free"))
    await api.create(api.path("pods"), pod("placed", nodeName="n1"))

    async def names(selector: str) -> list[str]:
        answer = await api.get(api.path("pods"), fieldSelector=selector)
        return [item["metadata"]["name"] for item in answer.body["items"]]

    assert await names("metadata.name=free") == ["free"]
    assert await names("spec.nodeName=n1") == ["placed"]
    assert await names("spec.nodeName=") == ["free"]
    assert await names("status.phase=Pending,spec.nodeName!=n1") == ["free"]


async def test_a_field_that_cannot_select_is_a_bad_request(api: RawApi) -> None:
    answer = await api.get(api.path("pods"), fieldSelector="spec.containers=x")

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "field label not supported: spec.containers" in answer.message


async def test_a_list_is_read_page_by_page(api: RawApi) -> None:
    for name in "abcde":
        await api.create(api.jobs(), job(name))

    first = await api.get(api.jobs(), limit="2")
    await api.create(api.jobs(), job("late"))
    second = await api.get(api.jobs(), limit="2", **{"continue": first.metadata["continue"]})
    third = await api.get(api.jobs(), limit="2", **{"continue": second.metadata["continue"]})

    pages = [[item["metadata"]["name"] for item in page.body["items"]] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert first.metadata["remainingItemCount"] == 3
    assert "continue" not in third.metadata


async def test_a_list_is_refused_from_a_version_that_is_not_there_yet(api: RawApi) -> None:
    version = int((await api.get(api.jobs())).metadata["resourceVersion"])

    answer = await api.get(api.jobs(), resourceVersion=str(version + 1_000_000_000))

    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "Too large resource version" in answer.message


# Plain updates and conflicts


async def test_put_replaces_the_object(api: RawApi) -> None:
    made = await api.create(api.jobs(), job("j"))
    made["metadata"]["labels"] = {"only": "this"}

    answer = await api.call("PUT", api.jobs("j"), made)

    assert answer.status == 200
    assert answer.metadata["labels"] == {"only": "this"}
    assert answer.metadata["resourceVersion"] != made["metadata"]["resourceVersion"]


async def test_put_of_an_older_version_is_a_conflict_and_changes_nothing(api: RawApi) -> None:
    old = await api.create(api.jobs(), job("j"))
    newer = await api.merge(api.jobs("j"), {"metadata": {"labels": {"bump": "1"}}})
    old["metadata"]["labels"] = {"stale": "1"}

    answer = await api.call("PUT", api.jobs("j"), old)

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (await api.get(api.jobs("j"))).body == newer.body


async def test_a_patch_that_names_an_older_version_is_a_conflict(api: RawApi) -> None:
    old = await api.create(api.jobs(), job("j"))
    await api.merge(api.jobs("j"), {"metadata": {"labels": {"bump": "1"}}})

    version = old["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"bump": "2"}}}
    answer = await api.merge(api.jobs("j"), patch)

    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_put_of_another_object_of_the_same_name_is_a_conflict(api: RawApi) -> None:
    old = await api.create(api.jobs(), job("j"))
    old["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    del old["metadata"]["resourceVersion"]

    answer = await api.call("PUT", api.jobs("j"), old)

    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_custom_object_is_put_with_its_version_only(api: RawApi, workloads: str) -> None:
    made = await api.create(workloads, workload("w", priority=1))
    del made["metadata"]["resourceVersion"]

    answer = await api.call("PUT", f"{workloads}/w", made)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.resourceVersion" in answer.message


async def test_a_write_that_changes_nothing_leaves_the_version(api: RawApi) -> None:
    made = await api.create(api.jobs(), job("j"))

    again = await api.merge(api.jobs("j"), {"metadata": {"labels": {"app": "x"}}})

    assert again.metadata["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_the_generation_counts_changes_of_the_spec_alone(api: RawApi, workloads: str) -> None:
    await api.create(workloads, workload("w", priority=1))

    labelled = await api.merge(f"{workloads}/w", {"metadata": {"labels": {"a": "b"}}})
    with_status = await api.merge(f"{workloads}/w/status", {"status": {"phase": "A"}})
    changed = await api.merge(f"{workloads}/w", {"spec": {"priority": 2}})

    generations = [answer.metadata["generation"] for answer in (labelled, with_status, changed)]
    assert generations == [1, 1, 2]


# Patches


async def test_a_merge_patch_sets_and_removes(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    answer = await api.merge(
        api.jobs("j"), {"metadata": {"labels": {"app": None, "z": "1"}}, "spec": {"suspend": False}}
    )

    assert answer.metadata["labels"] == {"z": "1"}
    assert answer.body["spec"]["suspend"] is False


async def test_a_json_patch_is_applied_in_order(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))
    operations = [
        {"op": "add", "path": "/metadata/labels/new", "value": "y"},
        {"op": "test", "path": "/metadata/labels/new", "value": "y"},
        {"op": "remove", "path": "/metadata/labels/app"},
    ]

    answer = await api.call("PATCH", api.jobs("j"), operations, content_type=JSON_PATCH)

    assert answer.status == 200
    assert answer.metadata["labels"] == {"new": "y"}


async def test_a_json_patch_whose_test_fails_changes_nothing(api: RawApi) -> None:
    before = await api.create(api.jobs(), job("j"))
    operations = [
        {"op": "add", "path": "/metadata/labels/new", "value": "y"},
        {"op": "test", "path": "/metadata/labels/app", "value": "other"},
    ]

    answer = await api.call("PATCH", api.jobs("j"), operations, content_type=JSON_PATCH)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (await api.get(api.jobs("j"))).body["metadata"] == before["metadata"]


async def test_a_strategic_patch_merges_lists_by_their_key(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p"))
    status = {
        "conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "B", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]
    }
    path = api.path("pods", "p", subresource="status")
    await api.call("PATCH", path, {"status": status}, content_type=STRATEGIC)

    change = {"status": {"conditions": [{"type": "B", "status": "False"}]}}
    answer = await api.call("PATCH", path, change, content_type=STRATEGIC)

    found = {each["type"]: each["status"] for each in answer.body["status"]["conditions"]}
    assert found == {"A": "True", "B": "False"}


async def test_custom_objects_take_no_strategic_patch(api: RawApi, workloads: str) -> None:
    await api.create(workloads, workload("w"))

    answer = await api.call("PATCH", f"{workloads}/w", {"spec": {}}, content_type=STRATEGIC)

    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


# Server-side apply


async def test_applying_creates_and_owns(api: RawApi, workloads: str) -> None:
    answer = await api.apply(f"{workloads}/w", workload("w", queueName="q", priority=5), "me")

    assert answer.status == 201
    (entry,) = answer.metadata["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:spec": {"f:queueName": {}, "f:priority": {}}}


async def test_applying_over_anothers_field_is_a_conflict_that_names_it(api: RawApi, workloads: str) -> None:
    await api.apply(f"{workloads}/w", workload("w", priority=5), "me")

    answer = await api.apply(f"{workloads}/w", workload("w", priority=7), "other")

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "me": .spec.priority'
    assert answer.body["details"]["causes"][0]["field"] == ".spec.priority"


async def test_applying_with_force_takes_the_field(api: RawApi, workloads: str) -> None:
    await api.apply(f"{workloads}/w", workload("w", priority=5, queueName="q"), "me")

    answer = await api.apply(f"{workloads}/w", workload("w", priority=7), "other", force=True)

    owned = {entry["manager"]: entry["fieldsV1"] for entry in answer.metadata["managedFields"]}
    assert answer.body["spec"] == {"priority": 7, "queueName": "q"}
    assert owned == {"me": {"f:spec": {"f:queueName": {}}}, "other": {"f:spec": {"f:priority": {}}}}


async def test_a_field_that_is_applied_no_longer_goes(api: RawApi, workloads: str) -> None:
    await api.apply(f"{workloads}/w", workload("w", queueName="q", priority=5), "me")

    answer = await api.apply(f"{workloads}/w", workload("w", queueName="q"), "me")

    assert answer.body["spec"] == {"queueName": "q"}


async def test_a_field_that_another_applies_too_stays(api: RawApi, workloads: str) -> None:
    await api.apply(f"{workloads}/w", workload("w", priority=5), "me")
    await api.apply(f"{workloads}/w", workload("w", priority=5), "other")

    answer = await api.apply(f"{workloads}/w", workload("w"), "me")

    assert answer.body["spec"] == {"priority": 5}


async def test_applying_the_same_again_changes_nothing(api: RawApi, workloads: str) -> None:
    first = await api.apply(f"{workloads}/w", workload("w", priority=5), "me")

    again = await api.apply(f"{workloads}/w", workload("w", priority=5), "me")

    assert (again.status, again.body) == (200, first.body)


async def test_applying_needs_a_manager(api: RawApi, workloads: str) -> None:
    body = workload("w")

    answer = await api.call("PATCH", f"{workloads}/w", body, content_type="application/apply-patch+yaml")

    assert answer.status == 400 or (answer.status, answer.reason) == (422, "Invalid")
    assert "fieldManager" in answer.message


async def test_yaml_can_be_applied(api: RawApi) -> None:
    body = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {day: "2026-01-01", answer: "42"}\n'

    answer = await api.call(
        "PATCH",
        api.path("configmaps", "c"),
        body,
        content_type="application/apply-patch+yaml",
        fieldManager="me",
    )

    assert answer.status == 201
    assert answer.body["data"] == {"day": "2026-01-01", "answer": "42"}


# Status


async def test_status_and_the_rest_are_written_apart(api: RawApi, workloads: str) -> None:
    await api.create(workloads, workload("w", priority=5) | {"status": {"phase": "Early"}})

    by_status = await api.merge(
        f"{workloads}/w/status", {"spec": {"priority": 99}, "status": {"phase": "Admitted"}}
    )
    by_main = await api.merge(f"{workloads}/w", {"spec": {"priority": 6}, "status": {"phase": "Hacked"}})

    assert (by_status.body["spec"], by_status.body["status"]) == ({"priority": 5}, {"phase": "Admitted"})
    assert (by_main.body["spec"], by_main.body["status"]) == ({"priority": 6}, {"phase": "Admitted"})


async def test_a_status_given_at_creation_is_dropped(api: RawApi, workloads: str) -> None:
    made = await api.create(workloads, workload("w") | {"status": {"phase": "Early"}})

    assert "status" not in made


async def test_the_writer_of_the_status_is_recorded_apart(api: RawApi, workloads: str) -> None:
    await api.create(workloads, workload("w", priority=1), fieldManager="maker")

    answer = await api.merge(f"{workloads}/w/status", {"status": {"phase": "A"}}, fieldManager="judge")

    entries = {entry["manager"]: entry for entry in answer.metadata["managedFields"]}
    assert entries["judge"]["subresource"] == "status"
    assert entries["judge"]["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}
    assert entries["maker"]["fieldsV1"] == {"f:spec": {".": {}, "f:priority": {}}}


# Watches


async def test_a_watch_from_a_version_reports_only_what_is_new(api: RawApi) -> None:
    await api.create(api.jobs(), job("old"))
    version = (await api.get(api.jobs())).metadata["resourceVersion"]

    async with api.watch(api.jobs(), resourceVersion=version) as events:
        await api.create(api.jobs(), job("new"))
        event = await anext(events)

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "new")


async def test_a_watch_reports_a_whole_life_in_order(api: RawApi) -> None:
    version = (await api.get(api.jobs())).metadata["resourceVersion"]
    await api.create(api.jobs(), job("j"))
    await api.merge(api.jobs("j"), {"metadata": {"labels": {"a": "1"}}})
    await api.call("DELETE", api.jobs("j"), propagationPolicy="Background")

    events = await api.watched(api.jobs(), resourceVersion=version)

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_a_version_begins_with_what_is_there(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    events = await api.watched(api.jobs())

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "j")]


async def test_a_watch_ends_when_its_time_is_up(api: RawApi) -> None:
    async with asyncio.timeout(60):
        assert await api.watched(api.jobs()) == []


async def test_a_streamed_list_ends_with_a_bookmark_that_says_so(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    async with api.watch(
        api.jobs(),
        allowWatchBookmarks="true",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
    ) as events:
        first, second = await anext(events), await anext(events)

    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "j")
    assert second["type"] == "BOOKMARK"
    assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_initial_events_are_asked_for_with_their_version_rule(api: RawApi) -> None:
    answer = await api.get(api.jobs(), watch="true", sendInitialEvents="true")

    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_watch_sees_objects_enter_and_leave_its_selection(api: RawApi) -> None:
    version = (await api.get(api.path("configmaps"))).metadata["resourceVersion"]
    await api.create(api.path("configmaps"), config_map("c", {"team": "red"}))
    await api.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"team": "blue"}}})
    await api.merge(api.path("configmaps", "c"), {"data": {"unseen": "1"}})
    await api.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"team": "red"}}})

    events = await api.watched(api.path("configmaps"), labelSelector="team=red", resourceVersion=version)

    assert [event["type"] for event in events] == ["ADDED", "DELETED", "ADDED"]


# Deletion


async def test_a_deleted_object_is_gone(api: RawApi) -> None:
    made = await api.create(api.jobs(), job("j"))

    answer = await api.call("DELETE", api.jobs("j"), propagationPolicy="Background")

    assert answer.status == 200
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {
        "name": "j",
        "group": "batch",
        "kind": "jobs",
        "uid": made["metadata"]["uid"],
    }
    assert (await api.get(api.jobs("j"))).status == 404


async def test_an_object_with_a_finalizer_stays_until_that_is_removed(api: RawApi) -> None:
    body = config_map("c")
    body["metadata"]["finalizers"] = ["battery.berth.dev/hold"]
    await api.create(api.path("configmaps"), body)

    await api.call("DELETE", api.path("configmaps", "c"))
    held = await api.get(api.path("configmaps", "c"))
    await api.merge(api.path("configmaps", "c"), {"metadata": {"finalizers": None}})

    assert held.metadata["deletionTimestamp"]
    assert held.metadata["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.path("configmaps", "c"))).status == 404


async def test_an_object_in_deletion_takes_no_new_finalizer(api: RawApi) -> None:
    body = config_map("c")
    body["metadata"]["finalizers"] = ["battery.berth.dev/hold"]
    await api.create(api.path("configmaps"), body)
    await api.call("DELETE", api.path("configmaps", "c"))

    late = {"metadata": {"finalizers": ["battery.berth.dev/hold", "battery.berth.dev/late"]}}
    answer = await api.merge(api.path("configmaps", "c"), late)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "no new finalizers can be added" in answer.message
    await api.merge(api.path("configmaps", "c"), {"metadata": {"finalizers": None}})


async def test_a_collection_is_deleted_by_selector(api: RawApi) -> None:
    for name, labels in (("a", {"team": "red"}), ("b", {"team": "blue"})):
        await api.create(api.path("configmaps"), config_map(name, labels))

    answer = await api.call("DELETE", api.path("configmaps"), labelSelector="team=red")

    assert answer.status == 200
    assert (await api.get(api.path("configmaps", "a"))).status == 404
    assert (await api.get(api.path("configmaps", "b"))).status == 200


async def test_a_deletion_holds_to_its_preconditions(api: RawApi) -> None:
    await api.create(api.path("configmaps"), config_map("c"))

    by_uid = await api.call("DELETE", api.path("configmaps", "c"), {"preconditions": {"uid": "other"}})
    by_version = await api.call(
        "DELETE", api.path("configmaps", "c"), {"preconditions": {"resourceVersion": "1"}}
    )

    assert (by_uid.status, by_version.status) == (409, 409)
    assert (await api.get(api.path("configmaps", "c"))).status == 200


async def test_a_bound_pod_is_given_its_grace(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p", nodeName="n1", terminationGracePeriodSeconds=20))

    await api.call("DELETE", api.path("pods", "p"))
    leaving = await api.get(api.path("pods", "p"))
    await api.call("DELETE", api.path("pods", "p"), {"gracePeriodSeconds": 0})

    assert leaving.metadata["deletionGracePeriodSeconds"] == 20
    assert leaving.metadata["deletionTimestamp"] > leaving.metadata["creationTimestamp"]
    assert (await api.get(api.path("pods", "p"))).status == 404


async def test_a_pod_without_a_node_goes_at_once(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p"))

    answer = await api.call("DELETE", api.path("pods", "p"))

    assert answer.body["kind"] == "Pod"
    assert (await api.get(api.path("pods", "p"))).status == 404


# Pods


async def test_a_pod_is_bound_once(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}}
    path = api.path("pods", "p", subresource="binding")

    first = await api.call("POST", path, binding | {"target": {"kind": "Node", "name": "n1"}})
    second = await api.call("POST", path, binding | {"target": {"kind": "Node", "name": "n2"}})

    bound = await api.get(api.path("pods", "p"))
    assert (first.status, second.status, second.reason) == (201, 409, "Conflict")
    assert bound.body["spec"]["nodeName"] == "n1"
    scheduled = [each for each in bound.body["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert scheduled[0]["status"] == "True"
    await api.call("DELETE", api.path("pods", "p"), {"gracePeriodSeconds": 0})


async def test_a_gated_pod_says_so_and_is_not_bound(api: RawApi) -> None:
    made = await api.create(api.path("pods"), pod("p", schedulingGates=[{"name": "battery.berth.dev/wait"}]))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"},
    }

    answer = await api.call("POST", api.path("pods", "p", subresource="binding"), binding)

    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert answer.status == 409


async def test_a_gate_can_be_taken_away_with_a_narrower_selector(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p", schedulingGates=[{"name": "battery.berth.dev/wait"}]))

    answer = await api.merge(
        api.path("pods", "p"), {"spec": {"schedulingGates": None, "nodeSelector": {"rack": "r1"}}}
    )

    assert answer.status == 200
    assert answer.body["spec"]["nodeSelector"] == {"rack": "r1"}
    assert "schedulingGates" not in answer.body["spec"]


async def test_a_pods_spec_is_fixed_otherwise(api: RawApi) -> None:
    await api.create(api.path("pods"), pod("p"))

    answer = await api.merge(api.path("pods", "p"), {"spec": {"nodeSelector": {"rack": "r1"}}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than' in answer.message
    )


# Custom kinds


async def test_a_custom_kind_is_defaulted_pruned_and_judged(api: RawApi) -> None:
    weight = {"type": "integer", "minimum": 1, "default": 3}
    properties = {"spec": {"type": "object", "properties": {"weight": weight}}}
    await define(api, definition("queues", "Queue", properties))
    path = api.path("queues", api=WORKLOADS)
    body = {"apiVersion": "battery.berth.dev/v1", "kind": "Queue", "metadata": {"name": "q"}}

    made = await api.create(path, body | {"spec": {"unknown": 1}})
    bad = await api.call("POST", path, body | {"metadata": {"name": "bad"}, "spec": {"weight": 0}})

    assert made["spec"] == {"weight": 3}
    assert (bad.status, bad.reason) == (422, "Invalid")
    assert bad.message == (
        'Queue.battery.berth.dev "bad" is invalid: spec.weight: Invalid value: 0: '
        "spec.weight in body should be greater than or equal to 1"
    )


async def test_unknown_fields_are_warned_of_or_refused(api: RawApi, workloads: str) -> None:
    body = workload("w", priority=1, colour="red")

    strict = await api.call("POST", workloads, body, fieldValidation="Strict")
    warned = await api.call("POST", workloads, body)

    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in strict.message
    assert (warned.status, warned.headers["Warning"]) == (201, '299 - "unknown field \\"spec.colour\\""')


async def test_a_field_that_no_header_can_name_is_not_warned_of(api: RawApi, workloads: str) -> None:
    created = await api.call("POST", workloads, workload("w", priority=1) | {"a\r\nb": 1})

    assert (created.status, "Warning" in created.headers) == (201, False)


async def test_a_custom_kinds_columns_are_printed(api: RawApi) -> None:
    column = {"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}
    properties = {"spec": {"type": "object", "properties": {"priority": {"type": "integer"}}}}
    crd = definition("printed", "Printed", properties, additionalPrinterColumns=[column])
    await define(api, crd)
    path = api.path("printed", api=WORKLOADS)
    body = {"apiVersion": "battery.berth.dev/v1", "kind": "Printed", "metadata": {"name": "p"}}
    await api.create(path, body | {"spec": {"priority": 4}})

    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    answer = await api.call("GET", path, accept=accept)

    assert answer.body["kind"] == "Table"
    assert [each["name"] for each in answer.body["columnDefinitions"]] == ["Name", "Priority"]
    assert [row["cells"] for row in answer.body["rows"]] == [["p", 4]]


async def test_selectable_fields_of_a_custom_kind_select(api: RawApi) -> None:
    properties = {"spec": {"type": "object", "properties": {"queue": {"type": "string"}}}}
    crd = definition("picked", "Picked", properties, selectableFields=[{"jsonPath": ".spec.queue"}])
    await define(api, crd)
    path = api.path("picked", api=WORKLOADS)
    for name, queue in (("a", "red"), ("b", "blue")):
        body = {"apiVersion": "battery.berth.dev/v1", "kind": "Picked", "metadata": {"name": name}}
        await api.create(path, body | {"spec": {"queue": queue}})

    answer = await api.get(path, fieldSelector="spec.queue=red")

    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]


async def test_versions_of_a_custom_kind_show_the_same_objects(api: RawApi) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd = definition("versioned", "Versioned", {})
    crd["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": True, "schema": schema},
        {"name": "v1beta1", "served": True, "storage": False, "schema": schema},
    ]
    await define(api, crd)
    new, old = (
        api.path("versioned", api=f"apis/battery.berth.dev/{version}") for version in ("v1", "v1beta1")
    )
    body = {"apiVersion": "battery.berth.dev/v1beta1", "kind": "Versioned", "metadata": {"name": "o"}}
    await api.create(old, body | {"spec": {"a": 1}})

    as_new, as_old = await api.get(f"{new}/o"), await api.get(f"{old}/o")

    assert as_new.body["apiVersion"] == "battery.berth.dev/v1"
    assert as_old.body["apiVersion"] == "battery.berth.dev/v1beta1"
    assert as_new.body["spec"] == as_old.body["spec"] == {"a": 1}
    assert as_new.metadata["uid"] == as_old.metadata["uid"]


async def test_a_schema_that_is_not_structural_is_refused_or_shown_so(api: RawApi) -> None:
    crd = definition("shapeless", "Shapeless", {"spec": {}})

    answer = await api.call("POST", CRDS, crd)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec.validation.openAPIV3Schema" in answer.message or "openAPIV3Schema" in answer.message


# Around the objects


async def test_openapi_is_served(api: RawApi) -> None:
    answer = await api.get("/openapi/v3")

    assert answer.status == 200
    assert "apis/batch/v1" in answer.body["paths"]


async def test_jobs_are_printed_as_a_table(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    answer = await api.call("GET", api.jobs(), accept=accept)

    names = [each["name"] for each in answer.body["columnDefinitions"] if each["priority"] == 0]
    assert names == ["Name", "Status", "Completions", "Duration", "Age"]
    assert answer.body["rows"][0]["cells"][0] == "j"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ("/apis/events.k8s.io/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
        ),
    ],
)
async def test_kinds_that_people_look_at_have_their_columns(api: RawApi, path: str, want: list[str]) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    answer = await api.call("GET", path, accept=accept)

    names = [each["name"] for each in answer.body["columnDefinitions"] if each["priority"] == 0]
    assert names == want


async def test_an_event_is_seen_in_both_its_groups(api: RawApi) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Admitted",
        "note": "on its way",
        "action": "Admit",
        "type": "Normal",
        "reportingController": "battery.berth.dev/test",
        "reportingInstance": "one",
        "regarding": {"kind": "Job", "name": "j", "namespace": api.namespace, "apiVersion": "batch/v1"},
    }
    await api.create(api.path("events", api="apis/events.k8s.io/v1"), event)

    answer = await api.get(api.path("events"), fieldSelector="involvedObject.name=j")

    (seen,) = answer.body["items"]
    assert (seen["message"], seen["involvedObject"]["kind"]) == ("on its way", "Job")
    assert seen["reportingComponent"] == "battery.berth.dev/test"


async def test_a_body_that_is_no_json_is_a_bad_request(api: RawApi) -> None:
    answer = await api.call("POST", api.path("configmaps"), b"{broken")

    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_large_custom_object_is_taken(api: RawApi, workloads: str) -> None:
    body = workload("w", queueName="x" * 1_200_000)

    made = await api.create(workloads, body)

    assert len(made["spec"]["queueName"]) == 1_200_000


async def test_an_unknown_path_is_not_found(api: RawApi) -> None:
    answer = await api.get("/apis/nowhere.berth.dev/v1/things")

    assert answer.status == 404
