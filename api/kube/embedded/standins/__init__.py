"""Simulated parts of a cluster that the embedded API server lacks: Job controller, scheduler, kubelets.

They are clients of the API, like the real ones, so the kubelet can also simulate the nodes of a real control
plane. No process runs in a pod: the annotations of a pod determine how long it runs.
"""
