"""What `berth explain` answers: a verdict, who holds what is missing, what would help, and all counts.

Modules, in reading order:

    answer       gathers the answer from an engine with the cluster's objects
    verdict      the sentences that lead: what becomes of the Workload, what it lacks, who holds that
    what_if      the answer about objects that are not submitted
    trials       tries what would help, each on an engine of its own
    records      Events: the promise's history, and why a Job has no Workload
    body         the answer as JSON
    text         the answer as text

Texts and JSON come from the same answer, so they agree.
"""
