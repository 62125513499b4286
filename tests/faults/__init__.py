"""A deterministic simulation of replicas, API server and Redis under faults, and the laws that hold there.

The code of Berth is real: brain, term, takeover, executor, failover store, elector, informers.
The world around it is a model, on one event loop in virtual time:

- `loop`: seeded order of what is ready together; processes that freeze and die.
- `etcd`, `apiserver`, `client`: objects and versions; requests in steps that may be late, lost or refused.
- `redis`, `scripts`: the store's scripts on a dict with a journal, so that it can lose its last milliseconds.
- `replica`, `standins`: one process of the controller; users, Job controller, garbage collector.
- `schedule`, `phases`, `trouble`: which faults a seed enables, when they strike, how they come about.
- `laws`, `world`: what must hold at each commit and at rest; one run from a schedule to its outcome.
- `shrink`, `known`, `findings/`: small schedules of what was found.
- `mutants`: mistakes in the protocol that the simulation has to find.

`python -m tests.faults --help` runs seeds; `make soak` runs many.
"""
