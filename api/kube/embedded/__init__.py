"""A small Kubernetes API server in one asyncio process, for `berth demo`, `berth replay` and fast tests.

For clients such as Berth and kubectl, it behaves like kube-apiserver 1.36: list and watch with versions,
bookmarks and 410, conflicts, selectors, paging, the status endpoint, four patch formats with managed fields,
finalizers and garbage collection, CRDs with defaults, pruning and validation, tables and discovery.

Known differences, all intentional:
- Nothing is stored on disk, clients are not authenticated, webhooks are not called.
- Bodies in CBOR are rejected with 415. Bodies in protobuf are too, except for the kinds that `kubectl create`
  creates without a file; `kubectl create -f` and `kubectl apply -f` send JSON.
- PersistentVolumeClaims are never bound, and no pod waits for one.
- CEL rules (x-kubernetes-validations) are accepted in a CRD but not evaluated.
- CRDs convert between versions by `None` only: a conversion webhook is not called.
- Only those fields of pods are validated that affect placement and resources; volumes and security settings
  are not.
- RBAC, webhook configurations, APIServices, Services, Deployments and the like are stored without effect.
- The server itself implements garbage collection, the deletion of namespaces and the status of
  PodDisruptionBudgets, which are tasks of controllers in a cluster. If a budget depends on the size of its
  owners (maxUnavailable, or a percentage), ReplicaSets, Deployments and StatefulSets are supported, but no
  custom kinds with a scale.
- A watch from a version that the server has not reached yet is answered with 410, because that version can
  only come from an earlier process.
- In custom kinds, an applied field that becomes empty is removed; the real server rejects the null that it
  produces.
"""
