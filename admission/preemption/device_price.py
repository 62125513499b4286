"""The cost of work in money, such as work that is lost: the price of the devices that it ran on.

    price of a device = node-cost-per-hour of its node ÷ the node's devices       where the node is known
                      = berth.dev/cost-per-device-hour of its flavor              otherwise
                      = 0                                                         where neither is given

The node's own price has precedence: it is what is paid for that node, while a flavor has one price for all
its nodes. The node of a pod is known if a topology placed the pod down to the hostname.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from admission.placement.topology.node_health import hosts_of
from api.jobs.resource_requests import gpus_of
from api.keys import NODE_COST_PER_HOUR
from api.node import NodeInfo
from api.parsing.prices import price
from api.workload import Admission, PodSetAssignment

# The price of a device-hour, by flavor and hostname; the hostname is "" where it is not known.
PriceOf = Callable[[str, str], float]

_SECONDS_PER_HOUR = 3600


def node_device_price(node: NodeInfo) -> float | None:
    """Return what one of the node's devices costs in an hour, None where it has no price or no devices.

    In the currency of the label, without a unit. Devices are the GPUs that the node reports as allocatable.
    """
    devices, per_hour = gpus_of(node.allocatable), price(node.labels.get(NODE_COST_PER_HOUR))
    return None if per_hour is None or not devices else per_hour / devices


def device_money(admission: Admission, device_seconds: float, price_of: PriceOf) -> float:
    """Return what the device-seconds have cost, shared evenly among the Workload's devices.

    0 for a Workload without devices, since nothing that it uses has a price. `price_of` is per hour.

    `price_of` is asked once for each flavor and host. Devices that no topology placed have the price of their
    flavor.
    """
    shares = [share for one in admission.pod_sets for share in _shares(one)]
    total = sum(devices for _, _, devices in shares)
    if not total:
        return 0.0
    per_hour = sum(devices * price_of(flavor, host) for flavor, host, devices in shares)
    return per_hour / total * device_seconds / _SECONDS_PER_HOUR


def _shares(pod_set: PodSetAssignment) -> Iterator[tuple[str, str, float]]:
    """Yield the flavor, the host and the number of devices for each part of a pod set."""
    hosts = tuple(hosts_of(pod_set.topology)) if pod_set.topology is not None else ()
    counts = [domain.count for domain in pod_set.topology.domains] if pod_set.topology is not None else []
    for resource, flavor in pod_set.flavors.items():
        devices = gpus_of({resource: pod_set.usage.get(resource, 0)})
        if not hosts:
            yield flavor, "", devices
        for host, pods in zip(hosts, counts, strict=False):
            yield flavor, host, devices * pods / max(1, sum(counts))
