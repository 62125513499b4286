"""A real control plane for the tests: etcd, kube-apiserver, and on demand controller manager and scheduler.

The Go module in this folder pins the versions. `python -m tests.controlplane build` builds the programs once
into a cache outside the tree (about nine minutes on two cores); starting a control plane then takes seconds.
The fixtures are defined in tests/conftest.py:

- `control_plane`: one per test process. Its tests keep apart by working in a `namespace` of their own;
- `bare_control_plane`: one per test process whose controllers are not started;
- `clean_cluster`: the same one, emptied before and after of Kueue's and Berth's objects, Jobs, Pods, Nodes;
- `fresh_control_plane`: one for this test alone, for those that kill or freeze the API server.

A test that uses one of them is marked `real`. Without the programs it is skipped, with the reason, or fails
where BERTH_REQUIRE names `controlplane` (see tests/parts.py).
"""

from tests.controlplane.binaries import Assets, AssetsMissing, find_assets
from tests.controlplane.cleaning import clean
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest, RestError

__all__ = ["Assets", "AssetsMissing", "ControlPlane", "Rest", "RestError", "clean", "find_assets"]
