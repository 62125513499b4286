"""The webhooks: faults are reported at `kubectl apply`, new Jobs are suspended, v1beta1 is converted.

Berth works without them; they report mistakes sooner, and gate pods. kube-apiserver calls them before
it stores an object (deploy/webhooks): /mutate for new Jobs and pods, /validate for Jobs, ClusterQueues,
Cohorts, ResourceFlavors and Workloads. Both only read the controller's state, so a dry run is handled
like any other request. /convert is asked for the other version of an object of Kueue (deploy/crds). Large
reviews are answered in a child process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http.conversion_answers import answer_conversion
from admission.controller.http.review_answers import Answer, OwnerJob, Parent, Surroundings, controller_of
from admission.controller.http.review_process import WAYS, ReviewProcess, Way
from admission.controller.runtime.logs import Log
from admission.reconcile.job.context import Ancestor
from admission.reconcile.job.defaults import DEFAULT_NAME, has_default_class
from api.http.server import HttpError, Request, Response, Route, text_response
from api.jobs.owners import table
from api.jobs.owners.owner import Owner
from api.jobs.stateful_set import STATEFUL_SET_KIND
from api.objects.common import OwnerReference
from api.wire.admission_review import AdmissionRequest, read_review

log = Log("berth.webhooks")

# etcd stores no larger value. As JSON a Job or pod is larger than what etcd stores of it, but not by so much
# that any that people write is near.
MAX_OBJECT_BYTES = 3 << 19
# An AdmissionReview has the object twice on UPDATE. The rest is for the names of the user's groups.
MAX_BODY_BYTES = 4 << 20
# kube-apiserver sends a list as one review; this much is some 6,000 Workloads. kubectl lists 500 at a time.
MAX_CONVERSION_BYTES = 32 << 20
# A review of this size takes up to 25 ms; those of usual Jobs have some 10 KiB.
LARGE_BYTES = 256 << 10
# Of a Workload with a topology assignment, the older version is up to a thousand times as large.
LARGE_CONVERSION_BYTES = 16 << 10


_OWNER = msgspec.json.Decoder(OwnerReference | None)


class Webhooks:
    """The three webhooks. `is_ready`: whether queues, namespaces and priority classes are known.

    `reviews` and `conversions` answer the large ones.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        is_ready: Callable[[], bool],
        *,
        reviews: ReviewProcess,
        conversions: ReviewProcess,
    ) -> None:
        self._cluster_state = cluster_state
        self._is_ready = is_ready
        self._reviews, self._conversions = reviews, conversions
        # Of large reviews one is read at a time: else many would be read before the loop gets to the lease.
        self._turn, self._conversion_turn = asyncio.Lock(), asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the routes of the webhook port."""
        return [
            Route("GET", "/healthz", _answer_ok),
            Route("POST", "/mutate", self._handler("mutate"), max_body_bytes=MAX_BODY_BYTES),
            Route("POST", "/validate", self._handler("validate"), max_body_bytes=MAX_BODY_BYTES),
            Route("POST", "/convert", self._convert, max_body_bytes=MAX_CONVERSION_BYTES),
        ]

    def _handler(self, way: Way) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            if len(request.body) < LARGE_BYTES:
                review = _read(request)
                around = self._surroundings(review, controller_of(review))
                answer = WAYS[way](review, around)
            else:
                async with self._turn:
                    review = _read(request)
                    answer = await self._answer_large(way, review, request.body)
            _log_refusal(review, answer)
            return Response(body=answer.body)

        return handle

    async def _convert(self, request: Request) -> Response:
        if len(request.body) >= LARGE_CONVERSION_BYTES:
            async with self._conversion_turn:
                return Response(body=await self._conversions.convert(request.body))
        try:
            return Response(body=answer_conversion(request.body))
        except ValueError as error:
            raise HttpError(400, str(error)) from error

    async def _answer_large(self, way: Way, review: AdmissionRequest, body: bytes | bytearray) -> Answer:
        around = self._surroundings(review, None)
        # Which owner matters is in the object, which this process does not read.
        if way == "mutate":
            said = await self._reviews.answer("controller", body, around)
            around = self._surroundings(review, _OWNER.decode(said.body))
        return await self._reviews.answer(way, body, around)

    def _surroundings(self, review: AdmissionRequest, controller: OwnerReference | None) -> Surroundings:
        is_pod, state, namespace = review.kind.kind == "Pod", self._cluster_state, review.namespace
        context = state.job_context
        return Surroundings(
            is_ready=self._is_ready(),
            holds_pods=state.pods.is_kept,
            serving_kinds=state.serving_kinds,
            manages_without_queue_name=context.settings.manages_without_queue_name,
            queues_plain_pods=context.settings.queues_plain_pods,
            gates_off=context.settings.gates_off,
            is_managed=context.is_namespace_managed(namespace),
            has_default_queue=(namespace, DEFAULT_NAME) in state.specs.local_queues,
            has_default_class=has_default_class(namespace, context),
            selects_pods=state.contexts.selects_pods_of(namespace),
            pod_selector=state.contexts.settings.pod_selector,
            owner=self._job(controller.uid) if controller is not None and is_pod else None,
            owner_kinds=frozenset(state.queued.rows),
            has_slices=context.settings.has_slices,
            parent=self._parent(controller, namespace) if controller is not None else None,
            set_group=self._set_group(controller if is_pod else None, namespace),
            external=table.external(),
        )

    def _set_group(self, controller: OwnerReference | None, namespace: str) -> tuple[str, int]:
        """Return name and size of the group of the StatefulSet that is a pod's controller; "" if none is."""
        state = self._cluster_state
        if controller is None or STATEFUL_SET_KIND not in state.serving_kinds:
            return "", 0
        found = state.stateful_sets.of_pod(namespace, controller)
        return ("", 0) if found is None else (state.stateful_sets.group_of(found), found.replicas)

    def _parent(self, controller: OwnerReference, namespace: str) -> Parent | None:
        """Return what is known of an owner of the table that a new object names as its controller."""
        state = self._cluster_state
        seen = state.queued.by_uid(controller.uid)
        if seen is None:
            is_awaited = state.contexts.ancestors.is_awaited(controller)
            return Parent(kind=controller.kind, raw=b"", waits=True) if is_awaited else None
        owner = seen.value
        if not isinstance(owner, Owner) or owner.namespace != namespace:
            return None
        ancestor = state.contexts.ancestors.of_children(seen)
        if ancestor is Ancestor.NONE:
            return None
        body = state.contexts.ancestors.expanded(owner, seen.raw)
        if body is None:
            return Parent(kind=owner.row.kind, raw=b"", waits=True)
        waits = ancestor is not Ancestor.COUNTED_ADMITTED
        return Parent(
            kind=owner.row.kind,
            raw=msgspec.json.encode(body),
            waits=waits,
            limits=state.engine.limits_of(namespace),
        )

    def _job(self, uid: str) -> OwnerJob | None:
        """Return what is known of the Job with this uid; None if there is no such Job."""
        seen = self._cluster_state.jobs.by_uid(uid)
        if seen is None:
            return None
        job = seen.value
        # Whether it is suspended is not asked: the watch may lag behind the start.
        gets_pods = job.outcome is None and not job.is_deleted and not job.has_foreign_controller
        return OwnerJob(namespace=job.namespace, name=job.name, gets_pods=gets_pods, selector=job.selector)


def _read(request: Request) -> AdmissionRequest:
    try:
        review = read_review(request.body)
    except ValueError as error:
        raise HttpError(400, str(error)) from error
    if max(len(bytes(review.object)), len(bytes(review.old_object))) > MAX_OBJECT_BYTES:
        most = MAX_OBJECT_BYTES >> 10
        raise HttpError(413, f"the {review.kind.kind} is larger than {most} KiB, more than etcd stores")
    return review


def _log_refusal(review: AdmissionRequest, answer: Answer) -> None:
    if answer.refused:
        kind = review.kind.kind
        log.info("refused", kind=kind, namespace=review.namespace, name=review.name, why=answer.refused)


async def _answer_ok(request: Request) -> Response:
    del request
    return text_response("ok")
