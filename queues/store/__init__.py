"""Store: reservations and the plan in Redis, and what happens when Redis is lost.

Modules, in reading order:

    failover_store    the store as a leader uses it; its docstring has the table of states
    blindness         whether a new leader can rely on what it finds
    write_back        what Redis lacks while it is lost
    redis_store       reservations in Redis
    redis_plan        the plan in Redis
    fabric_choices    in which fabric each training job is expected, for the replicas of the extender
    redis_scripts     how scripts are sent: at most twice, within 250 ms
    answer_time       how long an answer is awaited
    lua               the scripts of the folder `scripts`, one for each transition
    keys              every key
    clients           the client for a URL: one server, a primary that Sentinels name, a node of a cluster
    tls               connections whose TLS files are read again, and the authorities that they trust
    replication       when a write counts: replicas and disks that must have it
    access            password and TLS files of a connection
    seal              signatures of stored values
    encoding          reservations and log entries as bytes
    plan_rows         rows of the plan as bytes
    inspection        values under a shard's keys, for `berth store`
    faults            errors of Redis, each as one sentence with a fix
    embedded          a Redis as a child process

Decisions:

- Every transition is one Lua script that checks the fence first, so a leader that was replaced cannot write.
- Safety does not depend on Redis. While it is lost, admission goes on, guarded by lease and resourceVersion,
  and what was missed is written back (`failover_store`). A Redis that returns without a fence is seeded only
  by a leader that renewed its lease after that answer.
- One sequence of commands runs against the model in memory, fakeredis and a real Redis in the tests,
  and all must agree.

This is the only room of `queues` that does I/O. Its contract and values are `queues.reservations`.
"""
