"""Order, quota and time: what a queue knows without knowing what a cycle is.

    quota           the arithmetic of quota trees
    pending         the order in which pending Workloads are tried
    profile         capacity over time
    estimates       how long Workloads run
    reservations    reservations and the plan as values, and the contract of a store
    store           the same in Redis: the only room that touches the outside

`steps` (long searches that pause) and `tracked` (a dict that remembers its changes) serve all of them.
Nothing here imports `admission`, and all rooms but `store` are pure.
"""
