"""What the scheduler extender answers beyond model and NUMA: rules on pods and nodes, chosen by profile.

Each rule is a pure function of one pod and one node with what runs there (`facts`, `book`), in a module of
its own subject; `profiles` names which of them are asked for a pod.
"""
