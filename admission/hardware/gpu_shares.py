"""Shares of GPUs: how much of each GPU of a node the pods there leave.

A pod with `berth.dev/gpu-milli` uses that many thousandths of one GPU, and of its memory what
`berth.dev/gpu-memory-mib` says; every other pod has its GPUs to itself. Which GPU a pod got is known where it
is recorded (`berth.dev/gpu-ids`). The other shares are assumed to be packed: the largest first, each on the
fullest GPU that holds it, as sharing device plugins do when they pack; whole GPUs are those that remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from admission.hardware.islands import GpuPod
from api.jobs.gpu_share import WHOLE, GpuShare

# Steps of the search for a packing. A node has few shares, and the first try nearly always succeeds.
_MOST_STEPS = 2_000


class GpuFree(NamedTuple):
    """What is left of one GPU."""

    milli: int
    mib: int

    def holds(self, share: GpuShare) -> bool:
        """Return whether the share fits."""
        return self.milli >= share.milli and self.mib >= share.mib

    def without(self, share: GpuShare) -> GpuFree:
        """Return what is left beside the share."""
        return GpuFree(self.milli - share.milli, self.mib - share.mib)

    def times(self, share: GpuShare) -> int:
        """Return how many such shares fit."""
        by_milli = self.milli // share.milli
        return min(by_milli, self.mib // share.mib) if share.mib else by_milli


class PodGpus(NamedTuple):
    """A pod with GPUs on a node: whole ones, or a share of one; `ids` are () where they are not recorded.

    `is_linked`: those of a pod that was placed must be in one island.
    """

    gpus: int = 0
    share: GpuShare | None = None
    ids: tuple[int, ...] = ()
    is_linked: bool = False


def free_gpus(devices: int, mib: int, pods: Iterable[PodGpus]) -> list[GpuFree]:
    """Return what these pods leave of each of a node's GPUs, which have this much memory each.

    By index of the GPU. A pod that fits nowhere, as after a GPU has failed, takes from the roomiest ones.
    """
    free = [GpuFree(WHOLE, mib)] * devices
    unrecorded: list[GpuShare] = []
    whole = 0
    for pod in pods:
        known = [one for one in pod.ids if one < devices]
        if pod.share is None:
            for one in known:
                free[one] = GpuFree(0, 0)
            whole += max(0, pod.gpus - len(known))
        elif known:
            free[known[0]] = free[known[0]].without(pod.share)
        else:
            unrecorded.append(pod.share)
    for share in sorted(unrecorded, reverse=True):
        place = _fullest(free, share)
        if place is None:
            place = max(range(devices), key=lambda one: free[one], default=None)
        if place is not None:
            free[place] = free[place].without(share)
    # Whole GPUs last: shares are placed more freely, and must not be pushed onto GPUs that are in use.
    for place in sorted(range(devices), key=lambda one: (-free[one].milli, one))[:whole]:
        free[place] = GpuFree(0, 0)
    return free


def counted(pods: Iterable[PodGpus], slices: int) -> list[PodGpus]:
    """Return the pods as their node's GPUs count them, each of which it offers as so many slices."""
    return _recorded_once(_as_offered(pods, slices))


def _as_offered(pods: Iterable[PodGpus], slices: int) -> Iterator[PodGpus]:
    """Yield the pods as the node offers its GPUs: where those are slices, a pod has so many shares."""
    for pod in pods:
        if slices <= 1 or pod.share is not None:
            yield pod
            continue
        share = GpuShare(WHOLE // slices)
        for number in range(max(pod.gpus, len(pod.ids))):
            # Several slices may be of one GPU, which is recorded once.
            own = pod.ids[number % len(pod.ids)] if pod.ids else None
            yield PodGpus(share=share, ids=() if own is None else (own,))


def _recorded_once(pods: Iterable[PodGpus]) -> list[PodGpus]:
    """Return the pods, of which none records a GPU that others have already.

    Such a record is wrong, so the pod counts by what it requests. Whole GPUs come before shares, and then
    the order is that of the values, so that it does not depend on which pod was seen first.
    """
    pods = list(pods)
    left: dict[int, int] = {}
    if not any(pod.ids for pod in pods):
        return pods
    pods.sort(key=lambda pod: (pod.share is not None, pod))
    for place, pod in enumerate(pods):
        milli = WHOLE if pod.share is None else pod.share.milli
        if all(left.get(one, WHOLE) >= milli for one in pod.ids):
            left.update({one: left.get(one, WHOLE) - milli for one in pod.ids})
        else:
            pods[place] = pod._replace(ids=())
    return pods


def linked_pods(devices: int, mib: int, pods: Iterable[PodGpus]) -> list[GpuPod]:
    """Return the pods as islands count them: of GPUs in use, where a GPU that is shared counts once."""
    whole: list[GpuPod] = []
    shares: list[PodGpus] = []
    for pod in pods:
        if pod.share is None:
            whole.append(GpuPod(pod.gpus, pod.ids))
        else:
            shares.append(pod)
    if not shares:
        return whole
    known = {one for pod in shares for one in pod.ids[:1]}
    free = free_gpus(devices, mib, shares)
    used = {place for place, left in enumerate(free) if left.milli < WHOLE}
    # Of the shares that are not recorded only the number of GPUs is known, not which.
    others = len(used - known)
    return [*whole, *([GpuPod(len(known), tuple(sorted(known)))] if known else []), *[GpuPod(1)] * others]


def _fullest(free: Sequence[GpuFree], share: GpuShare) -> int | None:
    """Return the fullest GPU that holds the share, the first of several; None where none does."""
    holding = [place for place, left in enumerate(free) if left.holds(share)]
    return min(holding, key=lambda place: (free[place], place), default=None)


def room_for_share(free: Iterable[GpuFree], share: GpuShare) -> int:
    """Return how many more such shares the GPUs hold."""
    return sum([left.times(share) for left in free if left.holds(share)])


def whole_gpus(free: Iterable[GpuFree]) -> int:
    """Return how many of the GPUs no pod uses."""
    return sum([left.milli >= WHOLE for left in free])


def can_hold(devices: int, mib: int, pods: Sequence[PodGpus]) -> bool:
    """Return whether there is any way to give all these pods their GPUs.

    Where some of the pods can be held, fewer of them can be: so what was admitted beside others is never
    refused while these arrive one after another. True where the search takes too long.
    """
    whole = sum(pod.gpus for pod in pods if pod.share is None and not pod.ids)
    shares = sorted((pod.share for pod in pods if pod.share is not None and not pod.ids), reverse=True)
    free = free_gpus(devices, mib, [pod for pod in pods if pod.ids])
    if any(left.milli < 0 or left.mib < 0 for left in free):
        return False
    steps = 0

    def packs(position: int) -> bool:
        nonlocal steps
        steps += 1
        if steps > _MOST_STEPS:
            return True
        if position == len(shares):
            return whole_gpus(free) >= whole
        share, tried = shares[position], set[GpuFree]()
        for place in sorted(range(devices), key=lambda one: free[one]):
            left = free[place]
            # Equal GPUs are interchangeable.
            if left in tried or not left.holds(share):
                continue
            tried.add(left)
            free[place] = left.without(share)
            if packs(position + 1):
                return True
            free[place] = left
        return False

    return packs(0)
