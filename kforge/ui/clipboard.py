"""Copying that works over ssh (OSC 52), and says when it cannot have worked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

MOST_BYTES = 74_000  # terminals drop longer OSC 52 sequences without a word


def copy(text: str, write: Callable[[str], None]) -> str:
    """Put `text` into the clipboard; returns what to tell the person. write: sends OSC 52 to the terminal."""
    lines = text.count("\n") + 1
    what = f"{lines} line{'s' if lines > 1 else ''}"
    if os.environ.get("TMUX") and shutil.which("tmux"):
        try:
            done = subprocess.run(
                ["tmux", "load-buffer", "-w", "-"], input=text.encode(), check=False, capture_output=True, timeout=5
            )
        except subprocess.TimeoutExpired:
            return "not copied: tmux does not answer"
        if done.returncode == 0:
            return f"copied {what} (tmux passes it on where set-clipboard is not off)"
        return f"not copied: tmux says {done.stderr.decode(errors='replace').strip() or done.returncode}"
    if os.environ.get("TERM", "") in ("", "dumb", "linux"):
        return "not copied: this terminal has no clipboard"
    if len(text.encode()) > MOST_BYTES:
        return f"not copied: {what} are more than terminals take; copy a part"
    write(text)
    return f"copied {what}"
