"""Where the program is, and how it is called."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._errors import ProgramMissing, of_status

#: Names a program to call instead of the one that the wheel holds.
PROGRAM_VARIABLE = "PAGELAB_PROGRAM"

Event = dict[str, Any]
Listener = Callable[[Event], None]


def program() -> Path:
    """The path of the program: ``$PAGELAB_PROGRAM``, else the one installed with this module, else the first on ``PATH``.

    Raises:
        ProgramMissing: there is none; the message says how to install it.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        if os.access(named, os.X_OK):
            return Path(named)
        raise ProgramMissing(f"{PROGRAM_VARIABLE} is {named}, which is no program")
    # Where pip puts scripts: of this Python, of the user, and beside a `--target` folder.
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user"))]
    folders = [Path(folder) for folder in schemes if folder]
    folders.append(Path(__file__).parent.parent / "bin")
    for folder in folders:
        candidate = folder / "pagelab"
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    if found := shutil.which("pagelab"):
        return Path(found)
    raise ProgramMissing(
        f"there is no program pagelab in {', '.join(map(str, folders))} or on PATH; `pip install --force-reinstall pagelab` "
        f"with {sys.executable} installs it with this module, and {PROGRAM_VARIABLE}=FILE names another one"
    )


def call(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    listener: Listener | None = None,
    accept: Sequence[int] = (0,),
) -> tuple[str, int]:
    """Calls the program, and returns its stdout and exit status.

    ``listener`` gets each event of ``--progress json`` as it comes. An interrupt (Ctrl-C, or a notebook's stop button) is
    passed on, so that what is finished is kept.

    Raises:
        PagelabError: an exit status that is not in ``accept``.
    """
    words = [os.fspath(program()), *(os.fspath(word) for word in arguments)]
    said: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        except OSError as error:
            raise ProgramMissing(f"{words[0]} does not start: {error.strerror}; it is for x86-64 Linux") from error
        try:
            _read(process, listener, said)
        except BaseException as reason:
            # Whatever it is, no run is left behind; the program puts back what it has changed, and keeps finished cells.
            process.send_signal(signal.SIGINT)
            _read(process, None, said)
            status = process.wait()
            if isinstance(reason, KeyboardInterrupt) and status == 130:
                raise of_status("".join(said), status) from None
            raise
        finally:
            process.stderr.close()  # type: ignore[union-attr]
        status = process.wait()
        output.seek(0)
        text = output.read()
        # What fails before it has an answer prints none.
        if status not in accept or (status != 0 and not text):
            raise of_status("".join(said), status)
        return text, status


def _read(process: subprocess.Popen[str], listener: Listener | None, said: list[str]) -> None:
    """Passes events on, and keeps all other lines, to the end of stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if not line.startswith('{"event":'):
            said.append(line)
        elif listener is not None:
            listener(json.loads(line))


def read_json(arguments: Sequence[str | os.PathLike[str]], **more: Any) -> Any:
    """Calls the program, and returns what it prints as JSON."""
    text, _ = call(arguments, **more)
    return json.loads(text)


def option(name: str, value: object) -> list[str]:
    """An option of the command line with its value; nothing for None."""
    return [] if value is None else [name, str(value)]
