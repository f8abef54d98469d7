"""pagelab from Python: run experiments, and have results as tables.

    import pagelab

    result = pagelab.run("fault-storm", machine="one-node-512m", variant="v6.1", seeds=8)
    print(result.text())        # the tables, as the program prints them
    result.samples["value"]     # every sample, in the unit of its row's column "unit"

All work is done by the program ``pagelab``, which the wheel holds: this module writes its command line and reads its JSON.
Tables have ``__arrow_c_stream__``, which polars and DuckDB read as they are, and pandas with pyarrow beside it. Columns carry
their unit; the names of those that are always in one unit end with it: ``_ps`` are picoseconds (10^-12 s), ``_us``
microseconds, ``_s`` seconds, ``_kib`` KiB (1024 bytes).
"""

from ._command import program
from ._errors import CellsFailed, Interrupted, PagelabError, ProgramMissing, UsageError
from ._judged import (
    Change,
    Claim,
    Comparison,
    Judgement,
    Noise,
    NoiseRow,
    claims,
    compare,
    noise,
)
from ._result import Result, load
from ._run import run
from ._sweep import sweep
from ._table import Column, Table

__all__ = [
    "CellsFailed",
    "Change",
    "Claim",
    "Column",
    "Comparison",
    "Interrupted",
    "Judgement",
    "Noise",
    "NoiseRow",
    "PagelabError",
    "ProgramMissing",
    "Result",
    "Table",
    "UsageError",
    "claims",
    "compare",
    "load",
    "noise",
    "program",
    "run",
    "sweep",
]
