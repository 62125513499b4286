"""The extender's profiles in a running process: which rules the configuration gives, and what they see.

Nodes and pods come from the extender's watches. If kube-scheduler sends whole nodes, a node that the watch
has not brought yet is read from the request, together with the pods known on a node of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from admission.controller.runtime.logs import Log
from admission.extender.book import NodeBook
from admission.extender.facts import NodeView, PodFacts, to_ask
from admission.extender.gpu_fit import NodeCandidates
from admission.extender.profiles import BUILT_IN, PLAIN, ExtenderProfile, refusals, scores
from admission.extender.rules import Refusal
from admission.extender.sampling import Rotation, look_until, nodes_to_find
from admission.hardware.fit import HardwareRequest, request_of
from admission.hardware.rules import HardwareRules
from admission.hardware.settings import hardware_rules
from api.config.berth import ExtenderSettings
from api.node import NodeInfo, is_finished, to_node
from api.objects.cluster import NodeObject, PodObject
from api.parsing.problems import SpecError
from api.parsing.quantities import QuantityError

log = Log("berth.extender")

# One line per node helps while profiles are set up on a few nodes, but not for thousands of nodes.
MOST_NODES_LOGGED = 20
_NODE = msgspec.json.Decoder(NodeObject)
_BUILT_IN = {profile.name: profile for profile in BUILT_IN}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderRules:
    """The profiles by scheduler name, and the rules that filter. The defaults are built in.

    `scheduler_names`: pods of any other spec.schedulerName pass, with equal scores; empty: none do.
    """

    profiles: Mapping[str, ExtenderProfile] = field(default_factory=lambda: _BUILT_IN)
    hardware: HardwareRules = field(default_factory=HardwareRules)
    scheduler_names: frozenset[str] = frozenset()

    def serves(self, scheduler_name: str) -> bool:
        """Return whether pods of this scheduler name are filtered and scored at all."""
        return not self.scheduler_names or scheduler_name in self.scheduler_names

    def profile_of(self, scheduler_name: str) -> ExtenderProfile:
        """Return the profile for a pod's spec.schedulerName."""
        return self.profiles.get(scheduler_name, PLAIN)


def extender_rules(settings: ExtenderSettings, scheduler_names: Iterable[str] = ()) -> ExtenderRules:
    """Return the configured profiles. A profile with the name of a built-in one replaces it.

    Without `scheduler_names` all pods are served.
    """
    given = (
        ExtenderProfile(
            name=one.scheduler_name,
            scores=tuple((score.name, score.weight) for score in one.scores),
            percentage_of_nodes_to_score=one.percentage_of_nodes_to_score,
        )
        for one in settings.profiles
    )
    return ExtenderRules(
        profiles=_BUILT_IN | {one.name: one for one in given},
        hardware=hardware_rules(settings),
        scheduler_names=frozenset(scheduler_names),
    )


class ProfileRules:
    """Applies the profiles' `rules`, which may be replaced, to the nodes and pods that it is given."""

    def __init__(self, rules: ExtenderRules) -> None:
        self.rules = rules
        self._book = NodeBook()
        self._rotation = Rotation()

    def take_node(self, node: NodeObject) -> None:
        """Take a node as it is now. An unreadable node is logged and counts as having no resources."""
        self._book.put_node(_to_node(node))

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self._book.remove_node(name)

    def take_pod(self, pod: PodObject) -> None:
        """Take a pod as it is now."""
        metadata, node = pod.metadata, pod.spec.node_name
        if not node or is_finished(pod):
            self.remove_pod(metadata.namespace, metadata.name)
            return
        try:
            self._book.bind(to_ask(pod), node)
        except QuantityError as error:
            log.warning("pod-unreadable", pod=f"{metadata.namespace}/{metadata.name}", error=error)
            self.remove_pod(metadata.namespace, metadata.name)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Remove a pod."""
        self._book.release((namespace, name))

    def look(
        self, scheduler_name: str, nodes: int, refused: Callable[[Sequence[int]], Collection[int]]
    ) -> Sequence[int] | None:
        """Return which of `nodes` nodes were checked until enough passed; None if all have to be checked.

        Nodes are identified by their index in the request, in no order. `refused` returns which
        of some nodes fail.
        """
        profile = self.rules.profile_of(scheduler_name)
        enough = nodes_to_find(profile.percentage_of_nodes_to_score, nodes)
        if enough == nodes:
            return None
        looked_at = look_until(enough, self._rotation.order(profile.name, nodes), refused)
        self._rotation.advance(profile.name, len(looked_at))
        return looked_at

    def refusals(
        self, scheduler_name: str, pod: PodFacts, candidates: NodeCandidates, raw: Iterable[msgspec.Raw]
    ) -> Mapping[str, Refusal]:
        """Return which of the candidates the hardware does not suit the pod on, and why.

        The model alone is compared elsewhere, by the labels of the request.
        """
        need = request_of(pod.hardware, pod.gpus, self.rules.hardware, scheduler_name)
        if need is None or need == HardwareRequest(gpus=need.gpus, model=need.model):
            return {}
        return refusals(need, self._views(candidates, raw))

    def has_scores(self, scheduler_name: str) -> bool:
        """Return whether rules score the pods of this scheduler name."""
        return bool(self.rules.profile_of(scheduler_name).scores)

    def scores(
        self, scheduler_name: str, pod: PodFacts, candidates: NodeCandidates, raw: Iterable[msgspec.Raw]
    ) -> list[int] | None:
        """Return a score from 0 to 10 for each candidate; None if the profile has no scores."""
        profile = self.rules.profile_of(scheduler_name)
        if not profile.scores:
            return None
        views = self._views(candidates, raw)
        values = scores(profile, pod, [views[name] for name in candidates.names])
        _log_scores(pod, candidates, values)
        # Halves are rounded up: 95 of 100 becomes 10, and stays distinct from 90. Python's
        # round() rounds to even.
        return [int(value + 0.5) for value in values]

    def _views(self, candidates: NodeCandidates, raw: Iterable[msgspec.Raw]) -> Mapping[str, NodeView | None]:
        views = {name: self._book.view(name) for name in candidates.names}
        for one in raw if None in views.values() else ():
            node = _to_node(_NODE.decode(one))
            if views.get(node.name) is None:
                views[node.name] = self._book.view_of(node)
        return views


def _to_node(node: NodeObject) -> NodeInfo:
    try:
        return to_node(node)
    except SpecError as error:
        log.warning("node-unreadable", node=node.metadata.name, error=error)
        return NodeInfo(name=node.metadata.name, labels=node.metadata.labels or {})


def _log_scores(pod: PodFacts, candidates: NodeCandidates, values: Iterable[float]) -> None:
    """Log each node's score, as kube-scheduler's own plugins do at verbosity 4."""
    if not log.shows_debug() or len(candidates.names) > MOST_NODES_LOGGED:
        return
    for name, value in zip(candidates.names, values, strict=True):
        log.debug(f"Scoring node {name} for pod {pod}")
        log.debug(f"Final score for node {name}: {value:.2f}")
