"""Results as tables, in Python and as Arrow."""

import json
import subprocess

import pagelab
import pytest

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")


def lines_of(result):
    """The cells of a result file, which no code of the package reads."""
    records = map(json.loads, (result.path / "result.jsonl").read_text().splitlines())
    return [record for record in records if record["record"] == "cell"]


def test_tables_hold_what_the_result_file_holds(small):
    cells = lines_of(small)
    assert len(small.cells) == len(cells) == 8
    assert (small.experiment, small.missing, small.skipped) == ("fault-storm", 0, [])
    keys = [cell["key"] for cell in cells]
    for name in ("case", "kernel", "seed", "target", "machine", "program"):
        assert sorted(small.cells[name]) == sorted(key[name] for key in keys)
    assert sorted(small.cells["param_tasks"]) == sorted(key["params"]["tasks"] for key in keys)
    samples = [value for cell in cells for metric in cell["measured"]["metrics"] for value in metric["samples"]]
    assert sorted(small.samples["value"]) == sorted(samples), "to the last bit"
    for cell in cells:
        key = cell["key"]
        mine = {
            row["counter"]: row["value"]
            for row in small.counters.rows()
            if (row["case"], row["kernel"], row["seed"]) == (key["case"], key["kernel"], key["seed"]) and row["kind"] == "counter"
        }
        assert mine == cell["measured"]["counters"]
    assert sum(small.causes["time_ps"]) == sum(sum(cell["measured"]["causes"].values()) for cell in cells)


def test_columns_say_their_unit(small):
    assert small.cells.units["elapsed_ps"] == "ps"
    assert small.series.units == {"at_us": "us"}
    assert small.samples["value"].unit is None, "the row says it"
    assert "faults/s" in small.samples["unit"]
    assert "ps" in repr(small.cells["elapsed_ps"])


def test_polars_reads_tables_as_they_are(small):
    for table in (small.cells, small.samples, small.counters, small.causes, small.series, small.stalls(2)):
        frame = polars.DataFrame(table)
        assert frame.shape == (len(table), len(table.columns))
        for name, column in table.columns.items():
            assert frame[name].to_list() == list(column), (table.name, name)
    joined = polars.DataFrame(small.samples).join(polars.DataFrame(small.cells), on="cell")
    assert joined.height == len(small.samples)
    assert joined.filter(polars.col("param_tasks") == "2")["case"].unique().to_list() == ["base-threads-2"]


def test_polars_writes_parquet(small, here):
    polars.DataFrame(small.samples).write_parquet("samples.parquet")
    assert polars.read_parquet("samples.parquet")["value"].to_list() == list(small.samples["value"])


def test_duckdb_reads_tables_as_they_are(small):
    counters = small.counters  # noqa: F841  DuckDB finds it by its name
    found = duckdb.sql("select sum(value)::bigint from counters where counter = 'pgfault'").fetchall()
    assert found == [(sum(row["value"] for row in small.counters.rows() if row["counter"] == "pgfault"),)]


def test_a_table_reads_the_same_twice(small):
    first, second = (polars.DataFrame(small.samples) for _ in range(2))
    assert first.equals(second)


def test_fields_of_the_schema_carry_units(small):
    nanoarrow = pytest.importorskip("nanoarrow")
    fields = {field.name: dict(field.metadata.items()) for field in nanoarrow.Schema(small.cells).fields}
    assert fields["wall_s"][b"unit"] == b"s"
    assert b"unit" not in fields["kernel"]


def test_series_are_of_the_names_that_are_asked_for(small):
    one = small.series_of("pgfault")
    assert set(one["name"]) == {"pgfault"}
    assert list(one["value"]) == [row["value"] for row in small.series.rows() if row["name"] == "pgfault"]
    with pytest.raises(pagelab.UsageError, match="did you mean \"pgfault\"") as caught:
        small.series_of("pgfaul")
    assert caught.value.key == "--series"


def test_stalls_are_the_longest_with_their_causes(small):
    stalls = small.stalls(1)
    assert set(stalls["stall"]) <= {0}
    assert all(time > 0 for time in stalls["time_ps"])


def test_a_part_of_the_seeds_is_loaded(small):
    second = pagelab.load(small.path, seeds=(2, 2))
    assert set(second.cells["seed"]) == {2}
    assert set(second.series["seed"]) == {2}
    with pytest.raises(pagelab.UsageError, match="no seed 3"):
        pagelab.load(small, seeds=3)


def test_text_is_what_the_program_prints(small):
    program = subprocess.run([pagelab.program(), "show", small.path], capture_output=True, text=True, check=True)
    assert small.text() == program.stdout
    assert "Time by Cause" in small.text(causes=True)


def test_tables_can_be_looked_at(small):
    assert repr(small).startswith("Result(") and "cells=8" in repr(small)
    assert "elapsed_ps [ps]" in repr(small.cells)
    shown = repr(small.counters).splitlines()
    assert shown[0] == f"counters: {len(small.counters)} rows, 9 columns" and "..." in shown
    assert shown[-1] == "the same in all rows: target, machine"
    with pytest.raises(KeyError, match="table cells has no column 'sead'"):
        small.cells["sead"]
