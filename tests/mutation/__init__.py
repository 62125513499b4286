"""Mutation testing by folder: `make mutation FOLDER=queues/quota`."""
