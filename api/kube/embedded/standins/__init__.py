"""Stand-ins for what the embedded API server lacks of a cluster: Job controller, scheduler, kubelets.

They are clients of the API as the real ones are, so the kubelet also serves a real control plane whose
nodes are simulated. Nothing runs in a pod: it lives as long as its annotations say.
"""

from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns

__all__ = ["NodeSpec", "StandIns"]
