"""The cluster: requests, local copies of what is there, leader election, events. Alone in talking to it."""
