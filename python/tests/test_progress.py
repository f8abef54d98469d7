"""The bar of a terminal."""

import io
import sys

from pagelab._progress import Bar, Reporting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def step(done, doing="v6.1, seed 1"):
    return {"event": "step", "done": done, "total": 8, "doing": doing}


def test_a_terminal_has_a_line_that_goes_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "20")
    bar = Bar()
    bar(step(1))
    bar(step(2, "x"))
    bar({"event": "note", "text": "resuming"})
    bar.close()
    shown = sys.stderr.getvalue()
    lines = shown.replace("\n", "\r").split("\r")
    assert lines[1] == "[1/8] v6.1, seed 1" and lines[2].rstrip() == "[2/8] x"
    assert len(lines[2]) == len(lines[1]), "what was there before is overwritten"
    assert "pagelab: resuming" in shown
    assert shown.endswith("\r")


def test_elsewhere_nothing_is_printed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Reporting(None) as reporting:
        reporting(step(1))
        reporting({"event": "failed", "text": "a cell"})
        reporting({"event": "finished", "directory": "results/x"})
    assert sys.stderr.getvalue() == ""
    assert (reporting.failures, reporting.directories) == (["a cell"], ["results/x"])
