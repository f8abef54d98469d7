"""Tables as the program describes them, with every type, runs, and missing values."""

import pytest
from pagelab import Table

polars = pytest.importorskip("polars")


def column(name, kind, **values):
    return {"name": name, "type": kind, "unit": None, "about": name, **values}


def table(rows, *columns):
    return Table({"name": "made", "rows": rows, "columns": list(columns)})


def test_runs_and_values_are_the_same_to_readers():
    runs = {"bool": [[True, 2], [None, 1], [False, 9]], "uint64": [[2**64 - 1, 3], [0, 9]], "string": [["ä", 4], ["", 2], [None, 6]]}
    runs |= {"int64": [[-(2**63), 1], [None, 2], [7, 9]], "float64": [[0.1, 5], [None, 1], [-1e300, 6]]}
    for kind, pieces in runs.items():
        values = [value for value, rows in pieces for _ in range(rows)]
        for made in (table(12, column("x", kind, runs=pieces)), table(12, column("x", kind, values=values))):
            assert list(made["x"]) == values
            series = polars.DataFrame(made)["x"]
            assert series.to_list() == values, kind
            assert series.null_count() == values.count(None)


def test_a_table_of_no_rows_has_its_columns():
    made = table(0, *(column(kind, kind, runs=[]) for kind in ("bool", "uint64", "int64", "float64", "string")))
    frame = polars.DataFrame(made)
    assert (frame.height, frame.columns) == (0, ["bool", "uint64", "int64", "float64", "string"])
    assert len(made) == 0 and list(made.rows()) == []
    assert repr(made).startswith("made: 0 rows, 5 columns")


def test_a_long_table_is_shown_by_its_ends():
    made = table(100, column("n", "uint64", values=list(range(100))), column("k", "string", runs=[["same", 100]]))
    lines = repr(made).splitlines()
    assert len(lines) == 2 + 5 + 1 + 5 + 1
    assert (lines[2].strip(), lines[-2].strip(), lines[-1]) == ("0", "99", "the same in all rows: k")
