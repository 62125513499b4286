"""Wire: the bodies of HTTP requests that Berth answers, checked field by field.

Modules, in reading order:

    admission_review     AdmissionReview of webhooks
    extender             requests and answers of the scheduler extender
    extender_nodes       whole nodes in such a request
    visibility           the visibility API
    checkpoint_report    POST /v1/checkpoints
    pod_tokens           the tokens of pods, and their review
    access_reviews       TokenReview and SubjectAccessReview
    addressing           which requests to a port of this machine a browser sends for another site

Decisions:

- A whole node in an extender request is decoded once while its text stays the same (`extender_nodes`).
  kube-scheduler sends all nodes with every pod, and comparing bytes costs a tenth of reading JSON. Bytes are
  compared and not resourceVersions, which cannot be trusted there.

The handlers are `admission.controller.http`.
"""
