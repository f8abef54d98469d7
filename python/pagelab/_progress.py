"""A bar for the events of a run: in a notebook, or on a terminal."""

from __future__ import annotations

import html
import shutil
import sys
from typing import Any

from ._command import Event, Listener


class Bar:
    """Shows how many cells are done. Notes are lines of their own."""

    def __init__(self) -> None:
        self._display = _notebook_display()
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._handle: Any = None
        self._width = 0

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "step":
            self._show(event["done"], event["total"], event["doing"])
        elif kind in ("note", "failed"):
            self._line(("failed: " if kind == "failed" else "") + event["text"])

    def close(self) -> None:
        """Removes the bar."""
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
        elif self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
            self._width = 0

    def _show(self, done: int, total: int, doing: str) -> None:
        text = f"[{done}/{total}] {doing}"
        if self._display is not None:
            bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {html.escape(text)}'
            data = {"text/plain": text, "text/html": bar}
            if self._handle is None:
                self._handle = self._display(data, raw=True, display_id=True)
            else:
                self._handle.update(data, raw=True)
        elif self._is_terminal:
            text = text[: shutil.get_terminal_size().columns - 1]
            print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def _line(self, text: str) -> None:
        if self._display is not None or self._is_terminal:
            print("\r" * bool(self._width) + f"pagelab: {text}".ljust(self._width), file=sys.stderr)


def _notebook_display() -> Any:
    """IPython's `display`, if this is a notebook; nothing is imported otherwise."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


class Reporting:
    """Passes events to whom `progress` of `run` and `claims` names, and keeps what the caller needs of them."""

    def __init__(self, progress: bool | Listener | None) -> None:
        self._bar = Bar() if progress is None or progress is True else None
        self._listener: Listener | None = progress if callable(progress) else self._bar
        self.failures: list[str] = []
        self.directories: list[str] = []

    def __call__(self, event: Event) -> None:
        if event["event"] == "failed":
            self.failures.append(event["text"])
        elif event["event"] == "finished":
            self.directories.append(event["directory"])
        if self._listener is not None:
            self._listener(event)

    def __enter__(self) -> Reporting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
