"""Opens a page in the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_in_browser(url: str) -> None:
    """Open the address in the user's browser, where there is a screen to show it on."""
    # Without a screen, Python would start a text browser, which takes the terminal.
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in _SCREENS)
    if has_screen or os.environ.get("BROWSER"):
        webbrowser.open(url)
