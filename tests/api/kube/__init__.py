"""Tests of the client side of api/kube, and of the embedded API server."""
