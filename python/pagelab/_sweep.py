"""Sweeps: a grid of settings, here or on the workers of a Dask cluster."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._command import Listener, call, option, program
from ._errors import CellsFailed, PagelabError, UsageError, of_status
from ._progress import Reporting
from ._result import Result, Seeds, load, seeds_word
from ._run import Names, Setting, named, setting_words

if TYPE_CHECKING:
    from distributed import Client, Future

#: Lines that have come back, in the result directory while some are missing.
BACK = "back.jsonl"


def sweep(
    experiment: str | os.PathLike[str],
    client: Client | None = None,
    *,
    set: Mapping[str, Setting | Sequence[Setting]],
    out: str | os.PathLike[str],
    seeds: Seeds = 8,
    variant: Names = (),
    machine: str | os.PathLike[str] | None = None,
    state: str | None = None,
    workers: int | None = None,
    retries: int = 3,
    progress: bool | Listener | None = None,
) -> Result:
    """Runs a grid of settings, as ``pagelab sweep`` does, and returns its result; `Result.maps` draws it.

    With a client of Dask's ``distributed`` (``pip install pagelab[dask]``) each cell is a task: a line of ``pagelab cells``
    that ``pagelab worker`` works on where the task runs, and ``pagelab collect`` makes the result, with the bytes of one that
    was made here. Workers need this package, of the same build; other files do not travel, so ``state`` is a recipe.

    Args:
        experiment: name or path (``pagelab list experiments``).
        client: where to run it; here, if there is none.
        set: kernel settings and parameters of the workload; each with several values is an axis. ``"0..30000:5000"`` is a range.
        out: the result directory. The same call again goes on with what is missing.
        seeds: how many, from 1 on, or the first and the last, as of `run`.
        variant: the rules, by name or path; with a client several may be named.
        machine: name or path.
        state: where memory stands at the start: ``fresh`` or a recipe.
        workers: simulated cells at a time, without a client.
        retries: how often a cell is sent again whose worker was lost.
        progress: as of `run`.

    Raises:
        UsageError: wrong input, or a worker has another program.
        CellsFailed: some cells gave no result; the others are kept, and ``error.result`` says how many are missing.
    """
    words: list[str | os.PathLike[str]] = [experiment, "--seeds", seeds_word(seeds), *setting_words(set)]
    words += named("--variant", variant)
    words += option("--machine", None if machine is None else os.fspath(machine))
    words += [*option("--state", state), "--output", os.fspath(out)]
    if client is not None:
        with Reporting(progress) as reporting:
            return _on_cluster(client, words, Path(out), retries, reporting)
    with Reporting(progress) as reporting:
        call(["sweep", *words, *option("--workers", workers), "--progress", "json"], listener=reporting, accept=(0, 1))
    result = load(out)
    if reporting.failures:
        raise CellsFailed(reporting.failures, result)
    return result


def _on_cluster(
    client: Client, words: list[str | os.PathLike[str]], out: Path, retries: int, reporting: Reporting
) -> Result:
    back = out / BACK
    orders = call(["cells", *words])[0]
    if back.exists():
        orders = _collect(out, back, orders)
    if orders:
        with open(back, "a", encoding="utf-8") as file:
            # The end of a line that was being written when a call before this one ended.
            file.write("\n" if back.stat().st_size else "")
            for line in _come_back(client, orders.splitlines(), retries, reporting):
                file.write(line + "\n")
                file.flush()
        if reporting.failures:
            raise CellsFailed(reporting.failures, load(out))
        if _collect(out, back, orders):
            raise PagelabError(f"{back}: cells are missing that have come back")
    back.unlink(missing_ok=True)
    reporting({"event": "finished", "directory": os.fspath(out)})
    return load(out)


def _collect(out: Path, back: Path, orders: str) -> str:
    """Makes the result of what came back, or returns the lines that have to go out again."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write(orders)
        file.flush()
        return call(["collect", out, back, "--orders", file.name], accept=(0, 2))[0]


def _come_back(client: Client, orders: list[str], retries: int, reporting: Reporting) -> Iterator[str]:
    """The lines of results as they come, in no order. Cells that fail are told; a worker that refuses ends it."""
    from distributed import KilledWorker, as_completed

    lost: dict[Future, int] = {}
    names: dict[Future, str] = {}

    def submit(line: str, times: int) -> Future:
        # Each by itself: two sweeps may have a line in common, and one of them may be cancelled.
        future = client.submit(work, line, pure=False)
        lost[future], names[future] = times, line
        return future

    done = 0
    waiting = as_completed([submit(line, 0) for line in orders])
    try:
        for future in waiting:
            line, times = names.pop(future), lost.pop(future)
            error = future.exception()
            if isinstance(error, KilledWorker) and times < retries:
                waiting.add(submit(line, times + 1))
                continue
            if isinstance(error, UsageError):
                raise error
            done += 1
            key = json.loads(line)["order"]["key"]
            doing = f"{key['kernel']} {key['case']} seed {key['seed']}"
            reporting({"event": "step", "done": done, "total": len(orders), "doing": doing})
            if error is None:
                yield future.result()
            else:
                reporting({"event": "failed", "text": f"{doing}: {error}"})
            future.release()
    finally:
        client.cancel(list(names), force=True)


def work(line: str) -> str:
    """Works on a line of ``pagelab cells`` and returns the line to send back. The program ends when this process does."""
    # No signal at the parent's death is asked for, as that is the death of this thread: the program looks at its stdout.
    with subprocess.Popen(
        [os.fspath(program()), "worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            said, complaints = process.communicate(line + "\n")
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise of_status(complaints, process.returncode)
    return said.strip()
