"""The integration of batch/v1 Jobs: `reconcile_job` returns what a Job and its Workloads need next.

Modules, in reading order:

    context       what must be known of the cluster and the configuration
    held_job      a Workload with its bytes, and which slice of an elastic Job is which
    view          one look at a queued object and its Workloads: what the rules ask of any kind
    job_view      the same for a Job
    owner_view    the same for a kind of the table `api.jobs.owners`
    reconcile     the rules
    start_stop    the next step of a start and of a stop
    slices        the rules for elastic Jobs
    compose       how a Workload is made from a Job, and kept in step with it
    defaults      what a Job gets when it is created
    priorities    the priority of a Job or pod, and its class
    writes        how an answer becomes a request and an Event

How a Job is started and stopped follows Kueue: `spec.suspend` says whether the Job runs, and the admission's
node labels and tolerations are written into its pod template. The translation of the objects is `api.jobs`.
"""
