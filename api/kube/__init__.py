"""Access to the cluster: requests, informers, leader election, events.

No other package calls the API server.
"""
