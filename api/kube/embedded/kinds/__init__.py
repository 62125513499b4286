"""Kinds: which kinds the embedded API server serves, and the rules of each.

Modules, in reading order:

    kinds            a served kind, and the interface of its rules
    catalog          the kinds that are served now
    builtin_kinds    the built-in kinds
    crds             custom kinds
    strategies       the rules of small built-in kinds
    jobs, pods       Jobs and Pods; `job_status` and `pod_spec` are parts of their rules
    defaults         what the server fills in
    names            rules of metadata
    selectors        label and field selectors
    tables           what `kubectl get` prints; `columns` has the columns of built-in kinds
    events           Events under two API groups

Every rule follows the real server. Differences that remain are listed with their reasons in
tests/integration/test_embedded_against_real.py.
"""
