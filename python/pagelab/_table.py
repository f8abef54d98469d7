"""Tables of columns, which other libraries read as Arrow."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

Value = bool | int | float | str | None

_ARRAY_TYPES = {"uint64": "Q", "int64": "q", "float64": "d"}
#: Rows shown of each end of a table.
_SHOWN_ENDS = 5
_SHOWN_WIDTH = 24


class Column(Sequence[Value]):
    """One column of a table: a sequence of its values, None where one is missing.

    Attributes:
        name: its name.
        type: Arrow's name of its type: ``bool``, ``uint64``, ``int64``, ``float64`` or ``string``.
        unit: the unit of all its values, such as ``ps``, or None: a number without one, or one that another column names.
        about: what it holds, in words.
    """

    def __init__(self, described: dict[str, Any], rows: int) -> None:
        self.name: str = described["name"]
        self.type: str = described["type"]
        self.unit: str | None = described["unit"]
        self.about: str = described["about"]
        self._rows = rows
        self._runs: list[tuple[Value, int]] | None = described.get("runs")
        self._plain: list[Value] | None = described.get("values")

    @cached_property
    def values(self) -> list[Value]:
        """All values, as a list."""
        if self._plain is not None:
            return self._plain
        runs = (itertools.repeat(value, rows) for value, rows in self._runs or [])
        return list(itertools.chain.from_iterable(runs))

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def __repr__(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        return f"<Column {self.name!r}: {self._rows} of {self.type}{unit}; {self.about}>"

    def _schema(self) -> Any:
        import nanoarrow as na

        types = {"bool": na.bool_(), "uint64": na.uint64(), "int64": na.int64(), "float64": na.float64()}
        kind = types.get(self.type) or (na.large_string() if self._is_large else na.string())
        metadata = {"about": self.about} | ({"unit": self.unit} if self.unit else {})
        return na.c_schema(kind).modify(name=self.name, metadata=metadata)

    @cached_property
    def _is_large(self) -> bool:
        """Whether its texts are too long together for offsets of 32 bits."""
        if self.type != "string":
            return False
        return sum(4 * len(str(text)) for text in self.values) >= 2**31

    def _array(self) -> Any:
        import nanoarrow as na

        values = self.values
        missing = values.count(None)
        valid = _bits([value is not None for value in values]) if missing else None
        if self.type == "string":
            texts = [value.encode() if value is not None else b"" for value in values]  # type: ignore[union-attr]
            ends = itertools.accumulate(map(len, texts), initial=0)
            buffers = [valid, array("q" if self._is_large else "i", ends), b"".join(texts)]
        elif self.type == "bool":
            buffers = [valid, _bits([bool(value) for value in values])]
        else:
            filled = values if not missing else [0 if value is None else value for value in values]
            buffers = [valid, array(_ARRAY_TYPES[self.type], filled)]  # type: ignore[arg-type]
        return na.c_array_from_buffers(na.c_schema(self._schema()), self._rows, buffers, null_count=missing)


class Table:
    """A table of a result.

    ``table["value"]`` is a `Column`, a sequence of Python values; ``for row in table.rows()`` gives dicts. As Arrow::

        polars.DataFrame(result.samples)
        samples = result.samples; duckdb.sql("select metric, avg(value) from samples group by metric")
        pandas.DataFrame.from_arrow(result.samples)     # pandas 3, with pyarrow beside it

    Fields of the Arrow schema have metadata ``unit`` and ``about``.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self._rows: int = described["rows"]
        columns = (Column(column, self._rows) for column in described["columns"])
        self.columns: dict[str, Column] = {column.name: column for column in columns}

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"table {self.name} has no column {name!r}; it has {', '.join(self.columns)}") from None

    @property
    def units(self) -> dict[str, str]:
        """Units by name of the column, where all values of it have one."""
        return {column.name: column.unit for column in self.columns.values() if column.unit}

    def rows(self) -> Iterator[dict[str, Value]]:
        """Each row, by name of the column."""
        names = list(self.columns)
        for row in zip(*(column.values for column in self.columns.values())):
            yield dict(zip(names, row))

    def __arrow_c_schema__(self) -> object:
        return self._schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as an Arrow C stream of one batch (the Arrow PyCapsule interface)."""
        import nanoarrow as na
        from nanoarrow.c_array_stream import CArrayStream

        schema = self._schema()
        children = [column._array() for column in self.columns.values()]
        whole = na.c_array_from_buffers(schema, self._rows, [None], null_count=0, children=children)
        return CArrayStream.from_c_arrays([whole], schema, validate=False).__arrow_c_stream__(requested_schema)

    def _schema(self) -> Any:
        import nanoarrow as na

        fields = [column._schema() for column in self.columns.values()]
        empty = na.c_schema(na.struct([na.Schema(field) for field in fields]))
        return empty.modify(children=fields)

    def __repr__(self) -> str:
        """The first and the last rows, of columns that do not say the same in all of them."""
        shown = [column for column in self.columns.values() if self._rows < 2 or len(set(column.values)) > 1]
        heads = [f"{column.name} [{column.unit}]" if column.unit else column.name for column in shown]
        rows = [[_word(value) for value in row] for row in zip(*(self._ends(column) for column in shown))]
        widths = [max(map(len, column)) for column in zip(heads, *rows)]
        lines = [
            "  ".join(word.rjust(width) for word, width in zip(line, widths)).rstrip()
            for line in (heads, *rows)
        ]
        if self._rows > 2 * _SHOWN_ENDS:
            lines.insert(1 + _SHOWN_ENDS, "...")
        same = ", ".join(column.name for column in self.columns.values() if column not in shown)
        lines += [f"the same in all rows: {same}"] * bool(same)
        return "\n".join([f"{self.name}: {self._rows} rows, {len(self.columns)} columns", *lines])

    def _ends(self, column: Column) -> list[Value]:
        if self._rows <= 2 * _SHOWN_ENDS:
            return column.values
        return column.values[:_SHOWN_ENDS] + column.values[-_SHOWN_ENDS:]


def _word(value: Value) -> str:
    word = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return word if len(word) <= _SHOWN_WIDTH else word[: _SHOWN_WIDTH - 3] + "..."


def _bits(flags: list[bool]) -> bytes:
    """A bitmap, the first flag in the lowest bit."""
    if not flags:
        return b""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits, 2).to_bytes((len(flags) + 7) // 8, "little")
