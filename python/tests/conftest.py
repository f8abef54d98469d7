"""What the tests share: a small result, and how skips are told to `cargo xtask test`."""

import os
from pathlib import Path

import pytest

import pagelab

#: The smallest run with something in all tables: two kernels, two cases, two seeds, sampled.
SMALL = dict(
    machine="one-node-512m",
    variant=["v4.20", "v6.1"],
    set={"tasks": [1, 2], "page": "base", "model": "threads", "iterations": 1, "size": "2MiB"},
    seeds=2,
    sample="1ms",
)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = os.environ.get("PAGELAB_SKIPS")
    if report.skipped and file:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        name = "python::" + report.nodeid.rsplit("::", 1)[-1]
        with open(file, "a", encoding="utf-8") as skips:
            skips.write(f"{name}\t{reason.removeprefix('Skipped: ')}\n")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> pagelab.Result:
    return pagelab.run("fault-storm", out=tmp_path_factory.mktemp("results") / "small", progress=False, **SMALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
