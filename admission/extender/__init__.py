"""The scheduler extender's rules on pods and nodes, chosen by profile, and its scores by model and NUMA node.

Modules, in reading order:

    profiles     the rules that apply to a pod, by its scheduler name
    rules        what a refusal and a scorer are
    facts        a pod and a node as the rules see them
    book         the pods bound to each node
    sampling     how many nodes a filter evaluates
    gpu_fit      fit and score by GPU model, NVLink fabric and NUMA node
    gpu_aware    free GPUs and GPU memory
    isolation    training apart from inference
    cost         spot nodes, then cheap nodes

Decisions:

- Which nodes are refused is decided by `admission.hardware`, which admission and placement ask too. What is
  here scores nodes, by the same facts. The scheduler name that
  kube-scheduler passes on selects the rules, so several policies live in one process, and a manifest
  opts in and out.
- Which pods run on a node is collected once for each request, from a watch of all pods. A watch that begins
  on demand would answer the first pods with 503.

The HTTP side is `admission.controller.http.extender`; the wire format is `api.wire.extender`. The rules have
nothing to do with quota: they serve pods of any scheduler name.
"""
