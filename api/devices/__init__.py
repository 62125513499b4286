"""Devices of dynamic resource allocation (DRA): what pods ask for by claim becomes amounts that quotas count.

`values.py` classes, templates and devices as values, `catalog.py` what the cluster has of them, `claims.py`
the amounts of a pod set, `extended.py` resources that stand for a class (KEP-5004), `sources.py` counters and
capacities of devices. Which resource counts a class is `api/jobs/device_mapping.py`.
"""
