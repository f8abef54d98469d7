"""Sweeps, here and on a cluster of two workers."""

import os
import signal
import subprocess
import threading
import time

import pagelab
import pytest
from pagelab import _sweep

SPEC = dict(
    machine="one-node-512m",
    set={"size": ["2MiB", "4MiB"], "vm.swappiness": [0, 60], "iterations": 20, "page": "base", "tasks": 1, "model": "threads"},
    seeds=3,
)


def orders(out, **changed):
    spec = {**SPEC, **changed}
    words = ["fault-storm", "--machine", spec["machine"], "--seeds", str(spec["seeds"]), "--output", os.fspath(out)]
    return pagelab._command.call(["cells", *words, *pagelab._run.setting_words(spec["set"])])[0].splitlines()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return pagelab.sweep("fault-storm", out=tmp_path_factory.mktemp("sweeps") / "here", progress=False, **SPEC)


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install pagelab[dask]")
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield cluster, client


def same(one, other):
    """Whether two results have the same numbers, in the same order."""
    columns = ["case", "seed", "kernel", "user_ps", "system_ps", "elapsed_ps"]
    return all(list(one.cells[name]) == list(other.cells[name]) for name in columns) and one.maps() == other.maps()


def test_a_sweep_is_drawn(undisturbed):
    assert len(undisturbed.cells) == 12 and undisturbed.missing == 0
    assert "vm.swappiness" in undisturbed.maps("amean")
    with pytest.raises(pagelab.UsageError, match="vm.swapiness"):
        pagelab.sweep("fault-storm", out="x", set={"vm.swapiness": [0, 1]}, progress=False)


def test_a_lost_worker_changes_nothing(undisturbed, cluster, here):
    cluster, client = cluster
    events = []

    def kill_one(event):
        events.append(event)
        if len(events) == 1:
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

    result = pagelab.sweep("fault-storm", client, out="there", progress=kill_one, **SPEC)
    assert same(result, undisturbed)
    steps = [event for event in events if event["event"] == "step"]
    assert [step["done"] for step in steps] == list(range(1, 13)) and {step["total"] for step in steps} == {12}
    assert events[-1] == {"event": "finished", "directory": "there"}
    assert not (here / "there" / _sweep.BACK).exists()
    # Nothing is left to do.
    assert same(pagelab.sweep("fault-storm", client, out="there", progress=False, **SPEC), undisturbed)


def test_a_call_goes_on_with_what_has_come_back(undisturbed, cluster, here):
    _, client = cluster
    sent = orders("there")
    lines = [_sweep.work(line) for line in sent[:3]]
    (here / "there" / _sweep.BACK).write_text("\n".join([*lines, lines[0][:90]]))
    events = []
    result = pagelab.sweep("fault-storm", client, out="there", progress=events.append, **SPEC)
    assert same(result, undisturbed)
    assert [event["total"] for event in events if event["event"] == "step"] == [9] * 9


def test_work_goes_on_when_its_thread_has_ended(here):
    """Threads of a pool may end while others of their process go on."""
    line = orders("there")[0]
    answers = []
    thread = threading.Thread(target=lambda: answers.append(_sweep.work(line)))
    thread.start()
    thread.join()
    started = []
    starts = threading.Thread(
        target=lambda: started.append(
            subprocess.Popen([pagelab.program(), "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    )
    starts.start()
    starts.join()
    said, _ = started[0].communicate(line + "\n")
    assert started[0].returncode == 0 and said.count("\n") == 1 and len(answers) == 1


def test_a_worker_of_another_program_is_an_error(cluster, here):
    _, client = cluster
    line = orders("there")[0].replace('"program":"', '"program":"0', 1)
    with pytest.raises(pagelab.UsageError, match="is of program 0") as caught:
        _sweep.work(line)
    assert caught.value.status == 2
    # Errors travel as they are.
    with pytest.raises(pagelab.UsageError, match="is of program 0") as caught:
        client.submit(_sweep.work, line).result()
    assert caught.value.status == 2


def test_a_killed_worker_leaves_nothing_running(here):
    line = orders("there", set={**SPEC["set"], "iterations": 1_000_000, "size": "2MiB", "vm.swappiness": 0})[0]
    code = "import sys; from pagelab import _sweep; _sweep.work(sys.argv[1])"
    environment = {**os.environ, "PAGELAB_TEST": str(here)}
    process = subprocess.Popen([__import__("sys").executable, "-c", code, line], env=environment)
    mark = f"PAGELAB_TEST={here}".encode()

    def running():
        found = set()
        for entry in os.scandir("/proc"):
            try:
                with open(f"{entry.path}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.add(int(entry.name))
            except (OSError, ValueError):
                continue
        return found

    while len(running()) < 3:
        time.sleep(0.01)
    process.kill()
    process.wait()
    while running():
        time.sleep(0.01)
