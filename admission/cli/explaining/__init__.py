"""How `berth explain` shows its answer, which `admission.answers` finds.

Modules, in reading order:

    what_if      the answer about objects that are not submitted
    records      Events: the promise's history, and why a Job has no Workload
    text         the answer as text
    from_controller  the controller's answer, where the reader may read only a part

The text and the JSON of `/v1` come from the same answer, so they agree.
"""
