"""Quota: how much may a ClusterQueue use, and what does it borrow?

Modules, in reading order:

    resources          amounts by flavor and resource
    quota_tree         the arithmetic of the tree; the theory is in its docstring
    hierarchy          trees from the specs of ClusterQueues and Cohorts, and cycles of Cohorts
    tree_digest        whether two decisions were made against the same quotas
    fair_sharing       the dominant resource share
    quota_windows      which window of a quota is open, and when that changes
    window_timeline    the windows of one quota, followed along time

Decisions:

- Adding and removing usage are exact inverses, so a cycle tries changes on the tree itself and nothing is
  copied.
- A quota window shifts the nominal quota of a node (`QuotaNode.shift`). Usage of the same amount would
  lend and borrow differently.
- Quota windows are followed along time instead of evaluated again (`window_timeline`). Dozens of windows
  change every few minutes, and each change would otherwise cost a look at all of them. The result is the same
  as that of a fresh evaluation of the objects (`quota_windows`).

Which quotas are in force, and from which policies, is decided by `admission.calendar`.
"""
