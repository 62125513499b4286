"""The scheduler extender's rules on pods and nodes, chosen by profile, and its scores by model and NUMA node.

Each rule is a pure function of one pod and one node with the pods on it (`facts`, `book`), in a module of its
own subject; `profiles` names the rules that apply to a pod.
"""
