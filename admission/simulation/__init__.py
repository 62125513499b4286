"""Simulation: the production engine on a virtual clock.

Modules, in reading order:

    traces             recorded Jobs of real clusters
    shapes             from a number of GPUs to pods
    settings           what is assumed about the cluster and its Jobs
    policies           the policies that are compared
    virtual_cluster    nodes, queues and Workloads as the engine's values
    virtual_run        one policy on one trace
    course             what one Job has done, lost, and has left to do
    timeline           the heap of what happens when
    figures            what a policy achieved, in comparable numbers
    ledger             which Workload holds how much quota, from API objects alone
    audit              was quota ever exceeded? Also asked by demo, replay and tests
    report             the HTML report

Decisions:

- A policy is judged by the code that decides in production. `berth simulate` puts values into the
  same engine and plays only what surrounds it (`virtual_run`). A model of the scheduler would only
  confirm its own assumptions.
- The auditor uses none of the quota arithmetic of the engine. It computes usage from recorded API objects, so
  an error in the arithmetic cannot hide itself.

The flags and output of the command are in `admission.cli`.
"""
