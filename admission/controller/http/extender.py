"""The scheduler extender: kube-scheduler sends POST /filter and /prioritize for every pod.

Every pod's scheduling waits for it, so it never calls the API server. Nodes and the pods of training jobs
come from watches, and until both have synced the answer is 503. If kube-scheduler sends names
(nodeCacheCapable: true, 166 KiB for 5,000 nodes), their labels are looked up here. If it sends whole nodes
(25 MB), the labels are read from the request. Errors are plain text, because kube-scheduler logs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.http.extender_profiles import ExtenderRules, ProfileRules
from admission.controller.http.shared_fabrics import SharedFabrics
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.extender.facts import PodFacts
from admission.extender.gpu_fit import (
    PLAIN_SCORE,
    Affinity,
    NodeCandidates,
    failed_nodes,
    roomiest_fabric,
    score_nodes,
)
from admission.placement.training_jobs import TrainingJob, TrainingJobs
from api import keys
from api.http.server import (
    UNREADABLE_BODY,
    HttpError,
    Request,
    Response,
    Route,
    json_response,
    text_response,
)
from api.kube.informer import Change, ChangeType, Listener
from api.node import is_finished
from api.objects.cluster import NodeObject, PodObject
from api.wire.extender import (
    NO_LABELS,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    NodeLabels,
    NodeListAnswer,
    PodNeeds,
    node_labels,
    node_texts,
    read_args,
)

log = Log("berth.extender")
_T = TypeVar("_T")

# One line per node helps while an extender is set up on a few nodes, but not for thousands of nodes.
MOST_NODES_LOGGED = 20
# kube-scheduler sends all nodes at once: 5,000 of them are 21 MiB.
MAX_BODY_BYTES = 64 << 20
# A filter that takes longer than this delays the placement of every pod, and is logged.
SLOW_FILTER_SECONDS = 0.05


class Extender:
    """Answers /filter and /prioritize from the watched nodes and pods.

    The caller runs `watch`, after this object was created. `rules` are those of the profiles
    (`admission.extender`), `shared` is what replicas agree on. Tests replace `encode`.
    """

    def __init__(
        self,
        watch: NodePodWatch,
        clock: Clock,
        *,
        rules: ExtenderRules | None = None,
        shared: SharedFabrics | None = None,
        encode: Callable[[Any], bytes] = msgspec.json.encode,
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._encode = encode
        self._nodes: dict[str, NodeLabels] = {}
        self._jobs = TrainingJobs()
        self._shared = shared or SharedFabrics(None, clock)
        self._ruled = ProfileRules(rules or ExtenderRules())
        self._texts = node_texts()
        watch.nodes.listen(Listener(on_change=self._take_node))
        watch.pods.listen(Listener(on_change=self._take_pod))

    def routes(self) -> list[Route]:
        """Return the routes of the extender's port."""
        return [
            Route("POST", "/filter", self._filter, max_body_bytes=MAX_BODY_BYTES),
            Route("POST", "/prioritize", self._prioritize, max_body_bytes=MAX_BODY_BYTES),
        ]

    def state_routes(self) -> list[Route]:
        """Return the route that shows where training jobs run."""
        return [Route("GET", "/v1/trainingjobs", self._training_jobs)]

    def set_rules(self, rules: ExtenderRules) -> None:
        """Filter and score by these rules from now on."""
        if rules != self._ruled.rules:
            self._ruled.rules = rules
            log.info("profiles-changed", profiles=",".join(sorted(rules.profiles)))

    # --- the watches ------------------------------------------------------------------------------

    def _take_node(self, change: Change[NodeObject]) -> None:
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._nodes.pop(metadata.name, None)
            self._ruled.remove_node(metadata.name)
        else:
            self._nodes[metadata.name] = node_labels(metadata.labels or {})
            self._ruled.take_node(change.object)

    def _take_pod(self, change: Change[PodObject]) -> None:
        pod = change.object
        key = (pod.metadata.namespace, pod.metadata.name)
        if change.type is ChangeType.DELETED:
            self._ruled.remove_pod(*key)
        else:
            self._ruled.take_pod(pod)
        job = (pod.metadata.labels or {}).get(keys.TRAINING_JOB, "")
        is_there = change.type is not ChangeType.DELETED and not is_finished(pod)
        if is_there and job and pod.spec.node_name:
            self._jobs.place(key, TrainingJob(pod.metadata.namespace, job), pod.spec.node_name)
        else:
            self._jobs.remove(key)

    # --- filter -----------------------------------------------------------------------------------

    async def _filter(self, request: Request) -> Response:
        began = self._clock.monotonic()
        args = self._read(request, keeps_nodes=True)
        candidates = self._candidates(args)
        if args.pod is None or candidates is None:
            raise HttpError(400, "Invalid request: pod or nodes missing")
        if args.pod.gpu_model:
            log.info(f"Pod {args.pod} requests GPU model: {args.pod.gpu_model}")
        answer = self._answer(self._filtered(args, args.pod, candidates))
        seconds = self._clock.monotonic() - began
        if seconds > SLOW_FILTER_SECONDS:
            log.warning(f"Filter consumed {seconds * 1000:.0f}ms for pod {args.pod}")
        return answer

    def _filtered(self, args: ExtenderArgs, pod: PodNeeds, candidates: NodeCandidates) -> FilterResult:
        raw = args.nodes.raw if args.nodes is not None else ()
        looked_at: Sequence[int] = range(len(candidates.names))
        failed: Mapping[str, str] = {}
        final: Mapping[str, str] = {}
        if self._ruled.rules.serves(pod.scheduler_name):
            looked_at, failed, final = self._looked_at(pod, candidates, raw)
        names, shown = candidates.names, raw if args.nodes is not None else candidates.names
        passed: list[Any] = [shown[place] for place in looked_at if names[place] not in failed]
        untried = len(names) - len(looked_at)
        log.info(
            f"Filtering complete. Passed nodes: {len(passed)}, Failed nodes: {len(failed)}"
            f"{f', Not looked at: {untried}' if untried else ''}"
        )
        result = FilterResult(failed_nodes=failed, failed_and_unresolvable_nodes=final)
        if args.nodes is None:
            result.node_names = passed
        else:
            result.nodes = NodeListAnswer(passed)
        return result

    def _looked_at(
        self, pod: PodNeeds, candidates: NodeCandidates, raw: Sequence[msgspec.Raw]
    ) -> tuple[Sequence[int], Mapping[str, str], Mapping[str, str]]:
        """Return the indexes of the nodes that were checked, and which of them fail, as `_failed` does.

        A node that was not checked is in none of them: for kube-scheduler it is outside its own sample.
        """
        failed: dict[str, str] = {}
        final: dict[str, str] = {}

        def refused(places: Sequence[int]) -> Collection[int]:
            some = NodeCandidates(_at(places, candidates.names), _at(places, candidates.labels))
            why, finally_why = self._failed(pod, some, _at(places, raw) if raw else ())
            failed.update(why)
            final.update(finally_why)
            return {place for place in places if candidates.names[place] in why}

        looked_at = self._ruled.look(pod.scheduler_name, len(candidates.names), refused)
        if looked_at is None:
            return range(len(candidates.names)), *self._failed(pod, candidates, raw)
        names = set(_at(looked_at, candidates.names))
        return sorted(looked_at), _only(names, failed), _only(names, final)

    def _failed(
        self, pod: PodNeeds, candidates: NodeCandidates, raw: Sequence[msgspec.Raw]
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return which nodes fail and why, and those of them that would fail even if pods were evicted."""
        of_model = failed_nodes(pod, candidates)
        by_rules = self._ruled.refusals(pod.scheduler_name, _ask(pod), candidates, raw)
        if not by_rules:
            return of_model, of_model
        failed = {name: one.reason for name, one in by_rules.items()} | dict(of_model)
        final = {name: one.reason for name, one in by_rules.items() if one.is_final} | dict(of_model)
        return failed, final

    # --- prioritize -------------------------------------------------------------------------------

    async def _prioritize(self, request: Request) -> Response:
        args = self._read(request, keeps_nodes=False)
        candidates = self._candidates(args)
        if args.pod is None or candidates is None:
            raise HttpError(400, "Invalid request: pod or nodeNames missing")
        values = await self._values(request, args, args.pod, candidates)
        return self._answer(list(map(HostPriority, candidates.names, values)))

    async def _values(
        self, request: Request, args: ExtenderArgs, pod: PodNeeds, candidates: NodeCandidates
    ) -> Sequence[int]:
        if not self._ruled.rules.serves(pod.scheduler_name):
            return [0] * len(candidates.names)
        values = self._ruled_scores(request, args, pod, candidates)
        return values if values is not None else await self._scores(pod, candidates)

    def _ruled_scores(
        self, request: Request, args: ExtenderArgs, pod: PodNeeds, candidates: NodeCandidates
    ) -> Sequence[int] | None:
        raw: Sequence[msgspec.Raw] = ()
        if args.nodes is not None and self._ruled.has_scores(pod.scheduler_name):
            kept = self._read(request, keeps_nodes=True).nodes
            raw = kept.raw if kept is not None else ()
        return self._ruled.scores(pod.scheduler_name, _ask(pod), candidates, raw)

    async def _scores(self, pod: PodNeeds, candidates: NodeCandidates) -> Sequence[int]:
        fabrics, expected = await self._fabrics(pod, candidates)
        scores = score_nodes(pod, candidates, fabrics=fabrics, expected_fabric=expected)
        if scores.affinity is not Affinity.NONE:
            _log_scores(pod, candidates, scores.values, scores.affinity)
        return scores.values

    async def _fabrics(self, pod: PodNeeds, candidates: NodeCandidates) -> tuple[frozenset[str], str]:
        """Return the fabrics that the pod's job runs in or is expected in, and one for its first pod."""
        if not pod.training_job:
            return frozenset(), ""
        job, now = TrainingJob(pod.namespace, pod.training_job), self._clock.monotonic()
        fabrics = self._jobs.fabrics(job, self._nodes)
        if fabrics:
            return fabrics, ""
        expected = self._jobs.expected(job, now=now) or await self._shared.chosen(job)
        if expected:
            return frozenset({expected}), ""
        chosen = roomiest_fabric(pod, candidates) if pod.gpus else ""
        if not chosen:
            return frozenset(), ""
        agreed = await self._shared.choose(job, chosen)
        self._jobs.expect(job, agreed, now=now)
        # Another replica was asked for a pod of the same job meanwhile, and has chosen before.
        return (frozenset(), chosen) if agreed == chosen else (frozenset({agreed}), "")

    # --- both -------------------------------------------------------------------------------------

    def _read(self, request: Request, *, keeps_nodes: bool) -> ExtenderArgs:
        missing = self._watch.unsynced()
        if missing:
            raise HttpError(503, f"waiting for {', '.join(missing)}")
        try:
            return read_args(request.body, keeps_nodes=keeps_nodes, texts=self._texts)
        except ValueError as error:
            log.warning("extender-request-unreadable", path=request.path, error=error)
            raise HttpError(400, "Failed to unmarshal request") from error

    def _candidates(self, args: ExtenderArgs) -> NodeCandidates | None:
        if args.nodes is not None:
            metadata = [node.metadata for node in args.nodes.read]
            return NodeCandidates(
                [one.name for one in metadata], [one.labels or NO_LABELS for one in metadata]
            )
        if args.node_names is not None:
            return NodeCandidates(args.node_names, list(map(self._nodes.get, args.node_names)))
        return None

    def _answer(self, value: object) -> Response:
        try:
            return Response(body=self._encode(value))
        # Whatever the error is, kube-scheduler gets the message that it knows.
        except Exception as error:
            log.exception("extender-answer-unwritable")
            raise HttpError(500, "Failed to marshal response") from error

    async def _training_jobs(self, request: Request) -> Response:
        del request
        items = [
            {
                "namespace": job.namespace,
                "id": job.id,
                "nodes": nodes,
                "fabrics": sorted(self._jobs.fabrics(job, self._nodes)),
            }
            for job, nodes in self._jobs
        ]
        return json_response({"items": items})


def render_error(status: int, message: str) -> Response:
    """Return an error as the extender's port sends it: the message alone.

    A body that cannot be read is a 500 here, as in extenders written in Go, and a 400 on other ports.
    """
    return text_response(message, status=500 if message == UNREADABLE_BODY else status)


def _ask(pod: PodNeeds) -> PodFacts:
    return PodFacts(
        namespace=pod.namespace,
        name=pod.name,
        labels=pod.labels,
        annotations=pod.annotations,
        requests={keys.GPU_RESOURCE: pod.requested_gpus},
    )


def _at(places: Sequence[int], column: Sequence[_T]) -> list[_T]:
    return [column[place] for place in places]


def _only(names: Collection[str], reasons: Mapping[str, str]) -> Mapping[str, str]:
    return {name: reason for name, reason in reasons.items() if name in names}


def _log_scores(pod: PodNeeds, candidates: NodeCandidates, values: Sequence[int], affinity: Affinity) -> None:
    log.info(f"Prioritizing nodes for {'GPU pod' if pod.gpus else 'pod'} {pod}")
    if len(values) > MOST_NODES_LOGGED and not log.shows_debug():
        return
    write = log.info if len(values) <= MOST_NODES_LOGGED else log.debug
    for name, value in zip(candidates.names, values, strict=True):
        if value > PLAIN_SCORE:
            write(f"Node {name} gets high priority (score {value}) for {affinity} affinity")
        else:
            write(f"Node {name} gets low priority (score {value}) due to lack of {affinity} affinity")
