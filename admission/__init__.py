"""Everything that decides about Workloads, and the shell that carries the decisions out.

Each folder is a room with one question; ARCHITECTURE.md lists them bottom up, and an import contract holds
the order. All rooms up to `engine` and `extender` are pure: they read no clock, await nothing, draw no random
numbers and log nothing, so the same input gives the same decisions. `controller`, `simulation` and `cli` are
the shells that call them.
"""
