"""Fuzzing: input that breaks rules is refused with a sentence, and everything else goes on.

`test_fuzz.py` tries each target on a bounded number of fixed examples. `python -m tests.fuzz --minutes N`
tries new ones for as long as it is given, and prints what repeats a finding.

    inputs       strategies: texts, JSON values, objects with changed parts, broken bytes
    samples      objects of each kind with many fields set, which the strategies change
    texts        targets: the parsers
    objects      targets: rules, conversion, what a controller takes in and decides
    stored       targets: what Redis holds
    files        targets: files that commands read
    targets      all targets in one table
"""
