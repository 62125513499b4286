"""The errors of the server, apart from it: a command that serves nothing need not load it."""

from __future__ import annotations


class ListenError(Exception):
    """The server cannot listen on the address; the message names it and the fix."""
