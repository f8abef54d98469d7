"""What the program says of results: changes, noise, claims."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ._command import Listener, call, option, read_json
from ._progress import Reporting
from ._result import Result, Seeds, seeds_word

Directory = str | os.PathLike[str] | Result


@dataclass(frozen=True)
class Change:
    """One row of a comparison: two columns of a table.

    ``old`` and ``new`` are the values of all runs together, in ``unit``; ``change_percent`` is the change of these two in per cent
    of the old one, None from nought. ``geometric_percent`` with its 95 % interval is the change of geometric means, of which the
    test is where all values are positive; else, and with too few runs, it is None. ``quantity`` is ``time``, ``share``, ``count``,
    ``rate`` or ``amount``. ``verdict`` is ``better``, ``worse``,
    ``differs``, ``no_change``, ``same``, ``differs_in_all``, ``cannot_tell`` or ``one_run``.
    """

    experiment: str
    title: str
    unit: str
    quantity: str
    family: str
    metric: str
    case: str
    stat: str
    operation: str
    better: str
    old_column: str
    new_column: str
    old: float
    new: float
    runs: tuple[int, int]
    verdict: str
    p_holm: float | None
    change_percent: float | None
    geometric_percent: float | None
    low_percent: float | None
    high_percent: float | None
    #: The test itself, as the program prints it; None where there was none.
    test: dict[str, Any] | None

    @property
    def is_starred(self) -> bool:
        """Whether the change is separated from none (5 %, over all rows together) and large enough to matter."""
        return self.verdict in ("better", "worse", "differs")


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. Iterating gives its rows; ``str()`` is the text of the program."""

    results: list[str]
    rows: list[Change]
    #: How large a change has to be to matter: ``percent``, ``count`` (of counts), ``points`` (of shares).
    gates: dict[str, float]
    #: Rows that only one side has: ``only_old`` and ``only_new``.
    unmatched: dict[str, list[str]]
    #: A line for each row that ``fail_on`` names and that changed so.
    failed: list[str]
    _words: list[str | os.PathLike[str]]

    @property
    def starred(self) -> list[Change]:
        """The rows with a star."""
        return [row for row in self.rows if row.is_starred]

    def text(self, *, full: bool = False, markdown: bool = False) -> str:
        """The comparison in lines of 72 columns, to paste into a mail, or as tables of Markdown."""
        more = ["--full"] * full + ["--format", "markdown"] * markdown
        return call(["compare", *self._words, *more], accept=(0, 3))[0]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.text()


def compare(
    *results: Directory,
    seeds: Seeds | None = None,
    against: str | None = None,
    fail_on: str | Sequence[str] = (),
    gate: float | None = None,
    sort: bool = False,
) -> Comparison:
    """Says which rows of results differ, by how much, and whether that is more than luck, as ``pagelab compare`` does.

    Args:
        results: results or their directories; each column of the others is compared with its like in the first, or of a single
            result all columns with its first.
        seeds: only these.
        against: compare all columns with this one of the first result.
        fail_on: such as ``"amean:fault-base-3>5%"`` or, in the unit of the row, ``"compact_stall>100"``: rows that changed so are in `Comparison.failed`.
        gate: from how many per cent on a change matters.
        sort: the rows that are worst first.
    """
    conditions = [fail_on] if isinstance(fail_on, str) else fail_on
    words: list[str | os.PathLike[str]] = [*(os.fspath(result) for result in results), *_seeds(seeds)]
    words += [*option("--against", against), *option("--gate", gate), *["--sort"] * sort]
    words += [word for condition in conditions for word in ("--fail-on", condition)]
    found = read_json(["compare", *words, "--format", "json"], accept=(0, 3))
    comparison = found["comparison"]
    return Comparison(
        results=found["results"],
        rows=[_change(row) for row in comparison["rows"]],
        gates=comparison["gates"],
        unmatched=comparison["unmatched"],
        failed=found["failed"],
        _words=words,
    )


def _change(row: dict[str, Any]) -> Change:
    tested = row.pop("tested")
    test = tested.get("by") if isinstance(tested, dict) else None
    geometric = (test or {}).get("geometric") or {}
    row["runs"] = tuple(row["runs"])
    return Change(
        **row,
        geometric_percent=geometric.get("change"),
        low_percent=geometric.get("low"),
        high_percent=geometric.get("high"),
        test=test,
    )


@dataclass(frozen=True)
class NoiseRow:
    """The spread of single runs on one row and column: standard deviation, and the smallest change that four of five comparisons
    with as many runs see, both in per cent; and how many runs of each side a change of 5 % needs. None where one run is all, or
    where a run is zero or negative."""

    experiment: str
    title: str
    metric: str
    case: str
    name: str
    column: str
    family: str
    runs: int
    value: float
    spread_percent: float | None
    sees_percent: float | None
    runs_for_5_percent: int | None


class Noise(list[NoiseRow]):
    """The rows of `noise`; ``str()`` is the text of the program."""

    _words: list[str | os.PathLike[str]]

    def __str__(self) -> str:
        return call(["noise", *self._words])[0]


def noise(*results: Directory, seeds: Seeds | None = None) -> Noise:
    """Says how small a change the runs of results can see, row by row, as ``pagelab noise`` does."""
    words: list[str | os.PathLike[str]] = [*(os.fspath(result) for result in results), *_seeds(seeds)]
    rows = Noise(NoiseRow(**row) for row in read_json(["noise", *words, "--format", "json"]))
    rows._words = words
    return rows


@dataclass(frozen=True)
class Claim:
    """What a published table says so clearly that a model has to repeat it, and whether it holds here.

    ``verdict`` is ``holds``, ``fails`` or ``not_yet``; ``why_not_yet`` says why it cannot be judged. ``parts`` are dicts with the
    published figures, ours, and the bounds.
    """

    id: str
    claim: str
    reason: str
    identity: bool
    verdict: str
    why_not_yet: str | None
    unsettled: str | None
    suspected: str | None
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class Judgement:
    """The claims of one published series, judged by the mean over seeds."""

    series: str
    seeds: list[int]
    claims: list[Claim]


def claims(
    *series: str,
    result: Directory | None = None,
    seeds: Seeds | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | Listener | None = None,
) -> list[Judgement]:
    """Says which claims about published tables hold, as ``pagelab claims`` does.

    Args:
        series: which, such as ``"s0"``; all if none is named.
        result: judge this result, and run nothing. Without it what is needed is run first, which takes minutes.
        seeds: run with these (8 if it is not named); with ``result`` only these of it.
        workers, out, progress: as of `run`.
    """
    words: list[str | os.PathLike[str]] = [*series, *_seeds(seeds), *option("--workers", workers)]
    words += option("--output", None if out is None else os.fspath(out))
    if result is None:
        words += ["--progress", "json"]
    else:
        words += ["--result", os.fspath(result)]
    with Reporting(progress if result is None else False) as reporting:
        # 1 is a series that is not reached, which is an answer; or a cell failed, which a claim that it is part of says.
        found = read_json(["claims", *words, "--format", "json"], listener=reporting, accept=(0, 1))
    return [Judgement(one["series"], one["seeds"], [_claim(claim) for claim in one["claims"]]) for one in found]


def _claim(claim: dict[str, Any]) -> Claim:
    verdict = claim["verdict"]
    why = verdict["not_yet"] if isinstance(verdict, dict) else None
    return Claim(
        id=claim["id"],
        claim=claim["claim"],
        reason=claim["reason"],
        identity=claim["identity"],
        verdict="not_yet" if why is not None else verdict,
        why_not_yet=why,
        unsettled=claim.get("unsettled"),
        suspected=claim.get("suspected"),
        parts=claim["parts"],
    )


def _seeds(seeds: Seeds | None) -> list[str]:
    return [] if seeds is None else ["--seeds", seeds_word(seeds)]
