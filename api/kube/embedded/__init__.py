"""A small Kubernetes API server in one asyncio process, for `berth demo`, `berth replay` and fast tests.

It behaves to its clients as kube-apiserver 1.36 does, as far as Berth and kubectl can tell: list and watch
with versions, bookmarks and 410, conflicts, selectors, paging, the status endpoint, four kinds of patch
with managed fields, finalizers and garbage collection, CRDs with defaults, pruning and validation, tables
and discovery.

Known differences, each on purpose:
- Nothing is kept on disk, nobody is authenticated, no webhook is called.
- Bodies in CBOR are refused with 415, and those in protobuf but for the kinds that `kubectl create` makes
  without a file; `kubectl create -f` and `kubectl apply -f` send JSON.
- PersistentVolumeClaims are never bound, and no pod waits for one.
- Rules in CEL (x-kubernetes-validations) are accepted in a CRD and not evaluated.
- CRDs convert between versions by `None` only: a conversion webhook is not called.
- Of pods, what decides about placement and resources is validated; volumes and security settings are not.
- RBAC, webhook configurations, APIServices, Services, Deployments and the like are stored without effect.
- Garbage collection, the end of namespaces and the allowance of PodDisruptionBudgets, which controllers look
  after on a cluster, are the server's own. Of owners whose size a budget has to know (maxUnavailable, shares
  in percent) it knows ReplicaSets, Deployments and StatefulSets, and no custom kind with a scale.
- A watch from a version that the server has not reached is answered with 410: it is one of an earlier life.
- On custom kinds an applied field that empties becomes absent, where the real server refuses its own null.
"""

from api.kube.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
