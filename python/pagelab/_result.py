"""Results on disk, as tables."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from ._command import call, option, read_json
from ._errors import ProgramMissing
from ._table import Table

#: The version of `--format columns` that this module reads.
COLUMNS = 1

Seeds = int | str | range | tuple[int, int]


class Result:
    """A result directory as it was when it was loaded. `load` and `run` make one; it is a path for all that takes paths.

    Attributes:
        path: the directory.
        experiment: name of the experiment.
        program: hash of the program that made the result, in hexadecimal.
        missing: how many cells of the run are not there: it was interrupted, or is still running.
        skipped: work that was not done, each a dict with ``target``, ``what`` and ``reason``.
        cells: a row for each run of a workload: which it was, its parameters (``param_NAME``), times in ps, when and where.
        samples: a row for each sample of each metric, in the unit that its column ``unit`` names.
        counters: a row for each counter of /proc/vmstat and cell: how far it moved while the workload ran; with ``kind`` gauge
            how far apart the gauge was without and with the workload's memory.
        causes: a row for each cause of time and cell, in ps, of all tasks and kernel threads; simulated cells alone have them.
    """

    def __init__(self, path: str | os.PathLike[str], seeds: str | None = None) -> None:
        self.path = Path(path)
        self._seeds = seeds
        described = self._columns()
        self.experiment: str = described["experiment"]
        self.program: str = described["program"]
        self.missing: int = described["missing"]
        self.skipped: list[dict[str, Any]] = described["skipped"]
        tables = {table["name"]: Table(table) for table in described["tables"]}
        self.cells: Table = tables["cells"]
        self.samples: Table = tables["samples"]
        self.counters: Table = tables["counters"]
        self.causes: Table = tables["causes"]

    @cached_property
    def series(self) -> Table:
        """What kernels counted and held over time: name, time in us since the start of the run, value (frames, blocks, events).

        A value that never changes has one row, at the first instant.

        Raises:
            UsageError: nothing was sampled; ``run(..., sample="100ms")`` does it.
        """
        return self.series_of()

    def series_of(self, *names: str) -> Table:
        """The same of these names alone, such as ``node0/nr_free_pages``."""
        wanted = f"--series={','.join(names)}" if names else "--series"
        return Table(self._columns(wanted)["tables"][0])

    def stalls(self, count: int = 10) -> Table:
        """The longest operations of each cell that left the allocator's fast path or slept, times in ps by cause.

        Raises:
            UsageError: there is no log of them; simulated runs have one.
        """
        return Table(self._columns("--stalls", str(count))["tables"][0])

    def text(self, *, full: bool = False, causes: bool = False) -> str:
        """The tables as the program prints them; ``full`` with every row, ``causes`` with where time went."""
        flags = ["--full"] * full + ["--causes"] * causes
        return call(["show", self.path, *option("--seeds", self._seeds), *flags])[0]

    def maps(self, *metrics: str, gate: float | None = None, markdown: bool = False) -> str:
        """The maps of a sweep as the program draws them, of these rows (``"amean"``, a metric, a case, a counter) or all means;
        ``gate``: from how many per cent on a difference matters.

        Raises:
            UsageError: no setting has several values.
        """
        words = [*option("--metrics", ",".join(metrics) or None), *option("--gate", gate), *["--format", "markdown"] * markdown]
        return call(["sweep", "--result", self.path, *words])[0]

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        missing = f", missing={self.missing}" if self.missing else ""
        return f"Result({os.fspath(self.path)!r}, experiment={self.experiment!r}, cells={len(self.cells)}{missing})"

    def _columns(self, *which: str) -> dict[str, Any]:
        described: dict[str, Any] = read_json(["show", self.path, *option("--seeds", self._seeds), *which, "--format", "columns"])
        if described.get("columns") != COLUMNS:
            raise ProgramMissing(
                f"the program prints columns of version {described.get('columns')}, and this module reads {COLUMNS}: "
                "they are of different releases; `pip install --force-reinstall pagelab` installs both"
            )
        return described


def load(directory: str | os.PathLike[str], *, seeds: Seeds | None = None) -> Result:
    """Reads the result in a directory, or what of it has these seeds (``8`` is 1 to 8, ``(3, 5)`` is 3 to 5).

    Raises:
        UsageError: no result directory, a file of another kind or of an unknown version of the schema, or seeds it has not.
    """
    return Result(directory, None if seeds is None else seeds_word(seeds))


def seeds_word(seeds: Seeds) -> str:
    """Seeds as the command line has them: ``8``, or ``3-5``."""
    if isinstance(seeds, range):
        if seeds.step != 1 or not seeds:
            raise ValueError(f"seeds: expected a range of at least one with step 1, found {seeds}")
        return f"{seeds.start}-{seeds.stop - 1}"
    if isinstance(seeds, tuple):
        first, last = seeds
        return f"{first}-{last}"
    return str(seeds)
