"""A controller's page and queries on this machine, with the rights of the user of the kubeconfig.

Modules, in reading order:

    port_forward    a port of this machine that leads to the controller's, by kubectl
    forwarding      a server on loopback that adds the user's token to each request
    reaching        the way to a controller that flags describe
    asking          a client of /v1

The page itself is served by the controller (`admission.controller.page`).
"""
