"""Kueue's own integration suites, run against Berth's controller on a real kube-apiserver.

    suite (Go) ──▶ API server ◀── python -m tests.suites.controller
        │                                  ▲
        └── /metrics, start, stop, file ───┘

The suites are Kueue's released test code. It is built from Kueue's Go module after the few changes of
`changes.py`, with the Go files of `go/`: instead of Kueue's manager, a suite starts Berth's controller as a
child process, with a configuration file made from what the suite gives to the manager.

`changes.py` what is changed in Kueue's code, `build.py` the programs in the cache, `applicable.py` which
cases a black box cannot pass, `run.py` one run, `report.py` its results, `controller.py` the controller.
"""
