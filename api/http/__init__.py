"""HTTP server and certificates: routes, requests and responses as values.

Independent of queues and admission.
"""
