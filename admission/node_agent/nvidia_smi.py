"""Reads `nvidia-smi -q -x`: model, memory, MIG and NVLink domain of each GPU.

The format differs between drivers by the elements that it has, so only those that are read must be there.
Some drivers still list a GPU that has fallen off the bus, with "GPU is lost" as the value of its fields.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from admission.node_agent.gpus import Gpu, Inventory, ReadingError
from api.parsing.decimals import whole_number

# The root of the document.
_BEGIN, END = "<nvidia_smi_log>", "</nvidia_smi_log>"
# Values of a GPU that does not answer.
_LOST = re.compile(r"GPU is lost|GPU requires reset|Unknown Error|ERR!", re.IGNORECASE)
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$")
# The state of a GPU in an NVLink domain once the fabric manager is done, and the id of no domain.
_COMPLETED = "completed"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def parse_inventory(text: str) -> Inventory:
    """Return the GPUs in the output of `nvidia-smi -q -x`. Raises ReadingError."""
    # Some drivers print warnings before or after the document. The type before its root is not needed.
    document = text[max(0, text.find(_BEGIN)) :].partition(END)
    try:
        root = ElementTree.fromstring("".join(document[:2]))
    except ElementTree.ParseError as error:
        raise ReadingError(f"nvidia-smi -q -x printed no XML ({error}): {_beginning(text)}") from error
    gpus: list[Gpu] = []
    faults: list[str] = []
    for index, element in enumerate(root.iter("gpu")):
        found = _gpu(index, element)
        if isinstance(found, Gpu):
            gpus.append(found)
        else:
            faults.append(found)
    if not gpus and not faults:
        raise ReadingError("nvidia-smi lists no GPU")
    return Inventory(gpus=tuple(gpus), faults=tuple(faults))


def _gpu(index: int, element: ElementTree.Element) -> Gpu | str:
    """Return the GPU, or the sentence that says why it cannot be used."""
    bus_id = _bus_id(element)
    uuid, model = _text(element, "uuid"), _text(element, "product_name")
    memory = _text(element, "fb_memory_usage/total")
    lost = next((value for value in (uuid, model, memory) if _LOST.search(value)), "")
    if lost:
        return f"GPU {index} at {bus_id} does not answer: {lost}"
    if not uuid or not model:
        return f"GPU {index} at {bus_id} has no uuid or no product_name in the output of nvidia-smi"
    return Gpu(
        index=index,
        uuid=uuid,
        bus_id=bus_id,
        model=model,
        architecture=_text(element, "product_architecture"),
        memory_mib=whole_number(memory.removesuffix(" MiB")) or 0,
        is_split=_text(element, "mig_mode/current_mig") == "Enabled",
        fabric=_fabric(element),
    )


def _bus_id(element: ElementTree.Element) -> str:
    """Return the PCI address as in /sys: nvidia-smi writes the domain with eight digits."""
    found = _BUS_ID.search(element.get("id", "").lower())
    return found.group() if found else element.get("id", "an unknown address")


def _fabric(element: ElementTree.Element) -> str:
    """Return `<ClusterUUID>.<CliqueId>`, as GPU feature discovery writes it; "" without a domain."""
    fields = {
        child.tag.replace("_", "").lower(): (child.text or "").strip()
        for child in element.findall("fabric/*")
    }
    cluster, clique = fields.get("clusteruuid", "").lower(), fields.get("cliqueid", "")
    is_joined = (
        fields.get("state", "").lower() == _COMPLETED and fields.get("status", "").lower() == "success"
    )
    if not is_joined or cluster in ("", "n/a", _NO_CLUSTER) or whole_number(clique) is None:
        return ""
    return f"{cluster}.{clique}"


def _text(element: ElementTree.Element, path: str) -> str:
    """Return the text below an element; "" where it is missing or not available."""
    text = (element.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]") else text


def _beginning(text: str) -> str:
    return " ".join(text.split())[:200] or "nothing"
