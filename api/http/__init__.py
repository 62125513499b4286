"""HTTP for callers: a server of routes and values, and certificates of our own. Knows nothing of queues."""
