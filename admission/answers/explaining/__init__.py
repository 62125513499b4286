"""What becomes of one Workload: a verdict, what holds what is missing, what would help, and all counts.

Modules, in reading order:

    answer       gathers the answer from an engine with the cluster's objects
    verdict      the sentences that lead: what becomes of the Workload, what it lacks, what holds that
    trials       tries what would help, each change on a copy of the engine
    body         the answer as JSON

Texts and JSON come from the same answer, so they agree.
"""
