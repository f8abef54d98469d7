"""Runs, their events, and how they end."""

import _thread
import threading

import pagelab
import pytest
from conftest import SMALL


def test_events_come_while_it_runs(here):
    events = []
    result = pagelab.run("fault-storm", out="result", progress=events.append, **SMALL)
    steps = [event for event in events if event["event"] == "step"]
    assert steps[-1]["total"] == 8 and [step["done"] for step in steps] == sorted(step["done"] for step in steps)
    assert events[-1] == {"event": "finished", "directory": "result"}
    assert result.path.name == "result"


def test_a_result_is_gone_on_from(here):
    pagelab.run("fault-storm", out="result", progress=False, **SMALL)
    events = []
    pagelab.run("fault-storm", out="result", progress=events.append, **SMALL)
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert notes == ["resuming result: 8 of 8 cells are there"]


def test_seeds_are_written_in_several_ways(here):
    small = {**SMALL, "variant": "v6.1", "sample": None}
    small["set"] = {**small["set"], "tasks": 1}
    for seeds, expected in (((2, 3), {2, 3}), (range(2, 4), {2, 3}), ("3-3", {3}), (1, {1})):
        result = pagelab.run("fault-storm", progress=False, **{**small, "seeds": seeds})
        assert set(result.cells["seed"]) == expected
        assert result.path.parent.name == "results"
    with pytest.raises(ValueError, match="step 1"):
        pagelab.run("fault-storm", **{**small, "seeds": range(1, 9, 2)})
    with pytest.raises(TypeError, match="set: page: expected a number or a word"):
        pagelab.run("fault-storm", **{**small, "set": {"page": True}})


def test_an_interrupt_ends_the_run_and_keeps_what_is_done(here):
    finished = threading.Event()

    def interrupt(event):
        if event["event"] == "step" and event["done"] >= 1 and not finished.is_set():
            finished.set()
            _thread.interrupt_main()

    with pytest.raises(pagelab.Interrupted, match="`-o result` goes on"):
        pagelab.run("thpscale", machine="one-node-512m", variant="v6.1", seeds=40, workers=1, out="result", progress=interrupt)
    result = pagelab.load("result")
    assert len(result.cells) >= 1 and result.missing >= 1


def test_a_listener_that_fails_ends_the_run(here):
    def fail(event):
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        pagelab.run("thpscale", machine="one-node-512m", variant="v6.1", seeds=40, out="result", progress=fail)


def test_results_are_compared(small, here):
    comparison = pagelab.compare(small)
    assert len(comparison) == len(comparison.rows) > 10
    faults = [row for row in comparison if row.metric.startswith("faults_per_second.") and row.case == "base-threads-1"]
    assert [(row.unit, row.runs) for row in faults] == [("faults/s", (2, 2))]
    assert comparison.failed == []
    assert str(comparison).splitlines()[0]
    row = faults[0]
    change = (row.new / row.old - 1) * 100
    failing = pagelab.compare(small, fail_on=[f"{row.stat}:{row.operation}{'>' if change > 0 else '<-'}0%"])
    assert isinstance(failing.failed, list)
    with pytest.raises(pagelab.UsageError, match="--fail-on") as caught:
        pagelab.compare(small, fail_on="nothing")
    assert caught.value.key == "--fail-on"


def test_noise_says_what_runs_can_see(small):
    rows = pagelab.noise(small)
    assert {row.runs for row in rows} == {2}
    assert any(row.metric == "faults_per_second.Hmean" and row.value > 0 for row in rows)
    assert str(rows).splitlines()[0]


def test_claims_of_a_result_of_another_experiment_are_refused(small):
    with pytest.raises(pagelab.UsageError, match="makes no published table"):
        pagelab.claims(result=small)
    with pytest.raises(pagelab.UsageError, match="nosuch"):
        pagelab.claims("nosuch", progress=False)


def test_claims_are_judged(here):
    """Parts of a series that nothing was run for are told, with the reason."""
    result = pagelab.run("s2-free-700m", out="result", progress=False)
    judgements = pagelab.claims("s2", result=result)
    assert [judgement.series for judgement in judgements] == ["s2"]
    verdicts = {claim.id: claim.verdict for claim in judgements[0].claims}
    assert verdicts["s2-3"] in ("holds", "fails")
    assert any(claim.why_not_yet for claim in judgements[0].claims)
