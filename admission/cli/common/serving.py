"""What the commands share that serve until they are stopped: the ready line, the signals, the certificate."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from admission.cli.common.errors import WrongUsageError
from api.http.certificates import ServingTls, key_pair_of_files


def announce(urls: Mapping[str, str]) -> None:
    """Print the one line that tells where it listens, by name."""
    # The only line on stdout, for whoever started it with port 0 and has to know which one it became.
    sys.stdout.write(json.dumps({"event": "listening", **urls}) + "\n")
    sys.stdout.flush()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at SIGTERM and SIGINT, where the event loop can be told of them."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no such handlers; Ctrl-C ends the loop there by an exception.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)


def add_certificate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags of a certificate that others issue."""
    parser.add_argument("--tls-certificate", metavar="FILE", help=what)
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")


def check_certificate(certificate: str | None, key: str | None) -> None:
    """Raise WrongUsageError unless both files are given and fit, or none is."""
    if (certificate is None) != (key is None):
        raise WrongUsageError("--tls-certificate and --tls-key go together; give both, or neither")
    if certificate is None or key is None:
        return
    try:
        # Tried now, since later a pair that does not fit would show at each client instead.
        ServingTls(key_pair_of_files(Path(certificate), Path(key)))
    except (OSError, ValueError) as error:
        raise WrongUsageError(f"cannot serve {certificate} with {key}: {error}") from error
