"""HTTP: the handlers of the controller's ports.

Modules, in reading order:

    listening               one port
    ports                   which ports there are, for which clients
    health                  /healthz and /readyz
    query_api               the lists of /v1
    openapi                 the document that describes /v1
    state_api               metrics, one Workload, the order of a queue
    plan_api                the plan
    webhooks                validation, defaults, Jobs suspended in time
    review_answers          what they answer
    review_process          the answers to large reviews, in a child process
    visibility              Kueue's visibility API
    extender                /filter and /prioritize for kube-scheduler
    extender_profiles       its profiles in a running process
    extender_server         the extender without a controller
    extender_process        a controller's extender, in a child process
    checkpoint_reports      POST /v1/checkpoints
    checkpoint_subjects     which object a pod may report for
    checkpoint_writer       how a report is stored
    client_authority        who may call by a client certificate
    front_proxy             the authority of kube-apiserver's certificate
    pod_identity            which pod a token belongs to
    port_certificates       the certificate of the ports that need TLS
    serving_certificates    where it comes from: files, or a Secret of our own
    ca_injector             the CA in webhook configurations and APIServices

Decisions:

- Handlers change no state. They read frozen views, or post a call to the inbox of the control loop.
- A report of a checkpoint needs no leader (`checkpoint_reports`): it is a fact about the pod and no decision.
  Any replica stores it on the Job, on the pod if that is queued itself, or on the Workload of its group
  (`checkpoint_subjects`: the nearest object that lives as long as the work). The write is guarded by the
  version that was read.

The server itself is `api.http`; wire formats are `api.wire`; the extender's rules are `admission.extender`.
"""
