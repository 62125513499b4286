"""HTTP server and certificates: routes, requests and responses as values.

    server          routes, requests, responses; the bounds of bodies
    errors          the server cannot listen
    connections     which connections are open, and how long a client may take
    certificates    authorities and certificates, and TLS that exchanges them while it serves

Independent of queues and admission.
"""
