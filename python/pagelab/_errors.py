"""The program's messages as exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._result import Result

# `my.toml:4: rules: unknown rule "foo"`, `result.jsonl:2: expected schema 1 to 3`, `my.toml: cannot be read: ...`
_IN_FILE = re.compile(r"(?P<file>[^\s:][^:\n]*):(?P<line>\d+): (?:(?P<key>[A-Za-z_][\w.\[\]+-]*): )?")
_OF_FILE = re.compile(r"(?P<file>[^\s:][^:\n]*\.(?:toml|json|jsonl|csv|state)): ")
# `--set size: expected ...`, `--series: unknown column ...`
_OF_OPTION = re.compile(r"(?P<option>--[a-z][a-z-]*)(?: (?P<key>[\w.]+))?: ")
# What the program says of its own command line: `invalid value 'x' for '--seeds <N|A-B>': ...`
_OF_WORD = re.compile(r"'(?P<option>--[a-z][a-z-]*)")


class PagelabError(Exception):
    """The program ended with an error.

    Attributes:
        message: what it said, without ``pagelab:`` in front.
        status: its exit status: 1 it failed, 2 wrong input; negative: the signal that ended it; None where it did not start.
        file: the file that the message names, or None.
        line: the line in that file, from 1, or None.
        key: the key in that file, the setting or parameter, or else the option of the command line that is named, or None.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.file: str | None = None
        self.line: int | None = None
        self.key: str | None = None
        if place := _IN_FILE.match(message):
            self.file, self.line, self.key = place["file"], int(place["line"]), place["key"]
        elif place := _OF_FILE.match(message):
            self.file = place["file"]
        elif place := _OF_OPTION.match(message):
            self.key = place["key"] or place["option"]
        elif place := _OF_WORD.search(message.split("\n", 1)[0]):
            self.key = place["option"]


class UsageError(PagelabError):
    """Wrong input, or a target that cannot be had (exit status 2): nothing was written."""


class ProgramMissing(PagelabError):
    """There is no program ``pagelab``, or it is of another version than this module."""


class CellsFailed(PagelabError):
    """Some cells of a run gave no result (exit status 1).

    Attributes:
        failures: one text for each such cell, with the reason.
        result: all others.
    """

    def __init__(self, failures: list[str], result: Result) -> None:
        super().__init__("; ".join(failures), 1)
        self.failures = failures
        self.result = result


class Interrupted(KeyboardInterrupt):
    """The run was interrupted (exit status 130). Its finished cells are kept: the same call with the same ``out`` goes on."""


def of_status(message: str, status: int) -> BaseException:
    """The exception for what the program said and how it ended."""
    message = message.strip()
    for begin in ("pagelab: ", "error: "):
        message = message.removeprefix(begin)
    if status == 130:
        return Interrupted(message)
    if status == 2:
        return UsageError(message, status)
    if not message:
        message = f"pagelab ended with status {status}" if status >= 0 else f"pagelab was ended by signal {-status}"
    return PagelabError(message, status)
