"""Opens the page in the user's browser."""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def opened(url: str) -> Iterator[None]:
    """Has a browser open the address. It has a token, and any user can read command lines, so the
    browser is given a file that goes on to it, and that its owner alone can read.
    """
    handle, name = tempfile.mkstemp(prefix="deepfreeze-", suffix=".html")  # of mode 0600
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(
                '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
                "<title>DeepFreeze</title>"
            )
        with contextlib.suppress(webbrowser.Error, OSError):
            webbrowser.open(path.as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)
