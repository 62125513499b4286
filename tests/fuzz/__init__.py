"""Fuzzing: input that breaks rules is refused with a sentence, and everything else goes on.

`test_fuzz.py` tries each target on a bounded number of fixed examples. `python -m tests.fuzz --minutes N`
tries new ones for as long as it is given, and prints what repeats a finding.

    inputs       strategies: texts, JSON values, objects with changed parts, broken bytes
    samples      objects of each kind with many fields set, which the strategies change
    texts        targets: the parsers
    objects      targets: rules, conversion, what a controller takes in and decides
    submitted    targets: Jobs and other kinds that are queued as a whole
    files        targets: files that commands read, and what Redis holds
    targets      all targets in one table
"""
