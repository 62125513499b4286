"""The node agent: what it reads of a node's GPUs, and the labels and annotations that follow.

Modules, in reading order:

    gpus          the GPUs of a node as values
    nvidia_smi    nvidia-smi -q -x
    links         nvidia-smi topo -m
    islands       which GPUs are linked with each other
    node_labels   the labels of the node
    pod_devices   the kubelet's answer about the devices of pods
    shell         processes, sockets and the API server

Decisions:

- nvidia-smi and not NVML through nvidia-ml-py. Both ask the same library. A call into a driver that hangs
  never returns and would hang the agent; a child process can be given up.
- gRPC by grpclib, which is pure Python and with all it needs 0.8 MB of the image; grpcio and protobuf are
  19.7 MB. One answer is read, so the wire format of protobuf is enough (`api.parsing.protobuf_wire`).
- Labels are written by server-side apply with a field manager of its own: the API server then knows which
  labels are the agent's, and a label of another writer is never changed.
"""
