"""What the node agent does: it runs nvidia-smi, asks the kubelet, and writes to the API server.

Modules, in reading order:

    hardware             nvidia-smi as a child process, and /sys
    kubelet              the pod-resources API over its socket
    node_labels_writer   the node's labels, by server-side apply
    faults               each fault once, in the log and as an Event of the Node
    health               /healthz and /readyz
    agent                the loop, and its start and end

One task reads and writes in turns, so a driver that hangs delays the ids of pods by its time limit. While it
hangs, no pod with GPUs starts.
"""
