"""Running experiments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ._command import Listener, call, option
from ._errors import CellsFailed, PagelabError
from ._progress import Reporting
from ._result import Result, Seeds, load, seeds_word

Setting = str | int | float
Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def run(
    experiment: str | os.PathLike[str],
    *,
    seeds: Seeds = 1,
    set: Mapping[str, Setting | Sequence[Setting]] | None = None,
    variant: Names = (),
    machine: str | os.PathLike[str] | None = None,
    target: Names = (),
    out: str | os.PathLike[str] | None = None,
    kernel: Names = (),
    state: str | os.PathLike[str] | None = None,
    sample: str | None = None,
    workers: int | None = None,
    memory: str | None = None,
    options: Sequence[str] = (),
    progress: bool | Listener | None = None,
) -> Result:
    """Runs an experiment, as ``pagelab run`` does, and returns its result.

    Args:
        experiment: name or path (``pagelab list experiments``).
        seeds: how many, from 1 on, or the first and the last: ``8``, ``(3, 5)``, ``range(3, 6)``, ``"3-5"``.
        set: kernel settings (``pagelab list settings``) and parameters of the workload (``pagelab list workloads``); of several
            values in a list each is a column (settings) or a row (parameters). Sizes are words such as ``"2MiB"``.
        variant: kernels as the simulator knows them (``pagelab list variants``), names or paths; for target ``sim`` alone.
        machine: name or path, for targets ``vm`` and ``sim``.
        target: ``sim``, ``vm``, ``host``; without it ``sim`` where ``machine``, ``variant`` or ``state`` is given, ``vm`` where
            ``kernel`` is, and else those of the experiment that can be had.
        out: the result directory; ``results/EXPERIMENT-DATE-TIME`` if it is not named. An unfinished one of the same run goes on.
        kernel: kernels for target ``vm``: versions in the cache, or paths of a bzImage.
        state: where memory stands at the start: ``fresh``, ``kernel``, a file or a recipe.
        sample: take a sample of all counters so often (``"100ms"``, ``"1s"``): `Result.series`.
        workers: simulated cells at a time; one for each CPU if it is not named. Results do not depend on it.
        memory: memory that a workload may use on the host, such as ``"2GiB"``.
        options: further words of the command line (``pagelab run --help``), such as ``["--replayable", "2"]``.
        progress: None is a bar in notebooks and on terminals; False nothing; a function gets each event as a dict: ``step`` with
            ``done``, ``total`` (cells) and ``doing``; ``note`` and ``failed`` with ``text``; ``finished`` with ``directory``.

    Raises:
        UsageError: wrong input, or a target that cannot be had; with ``file``, ``line`` and ``key`` where the message names them.
        CellsFailed: some cells gave no result; ``error.result`` has the others.
        Interrupted: a KeyboardInterrupt; finished cells are kept.
    """
    words: list[str | os.PathLike[str]] = ["run", experiment, "--seeds", seeds_word(seeds), "--progress", "json"]
    words += [*setting_words(set or {}), *named("--variant", variant), *named("--target", target), *named("--kernel", kernel)]
    words += option("--machine", None if machine is None else os.fspath(machine))
    words += option("--state", None if state is None else os.fspath(state))
    words += option("--output", None if out is None else os.fspath(out))
    words += [*option("--sample", sample), *option("--workers", workers), *option("--memory", memory), *options]
    with Reporting(progress) as reporting:
        _, status = call(words, listener=reporting, accept=(0, 1))
    if not reporting.directories:
        raise PagelabError(f"pagelab run ended with status {status} and named no result", status)
    result = load(reporting.directories[-1])
    if reporting.failures:
        raise CellsFailed(reporting.failures, result)
    return result


def setting_words(settings: Mapping[str, Setting | Sequence[Setting]]) -> list[str]:
    """Settings as options."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={_values(name, value)}")]


def named(flag: str, names: Names) -> list[str]:
    """An option for each name."""
    several = [names] if isinstance(names, (str, os.PathLike)) else names
    return [word for name in several for word in (flag, os.fspath(name))]


def _values(name: str, value: Setting | Sequence[Setting]) -> str:
    if isinstance(value, bool) or value is None:
        raise TypeError(f"set: {name}: expected a number or a word such as 'on' or '1', found {value!r}")
    if isinstance(value, (str, int, float)):
        return str(value)
    return ",".join(_values(name, one) for one in value)
